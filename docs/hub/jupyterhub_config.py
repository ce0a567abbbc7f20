"""JupyterHub for one course on one machine: each student a user of the system, each server a process of theirs."""

import grp
import os
import pwd
from pathlib import Path

c = get_config()  # noqa: F821 - JupyterHub defines it

HERE = Path(__file__).resolve().parent

c.JupyterHub.bind_url = os.environ.get("HUB_URL", "http://127.0.0.1:8000")  # behind a proxy that speaks HTTPS
c.JupyterHub.db_url = f"sqlite:///{HERE}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(HERE / "jupyterhub_cookie_secret")
c.ConfigurableHTTPProxy.pid_file = str(HERE / "jupyterhub-proxy.pid")

# Users of this system who are in the group `students` or `instructors` may log in, with their password.
c.JupyterHub.authenticator_class = "pam"
c.LocalAuthenticator.allowed_groups = {"students", "instructors"}
c.PAMAuthenticator.open_sessions = False

c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = c.Spawner.http_timeout = 120  # a class that begins at once
c.Spawner.environment = {
    "OMP_NUM_THREADS": "1",  # forty students on a few processors: threads would only wait for each other
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**20),  # glibc gives larger tensors back when they are freed
}


def settings(spawner):
    """Everyone has the course and its exchange; students do not have nbgrader's formgrader."""
    user = pwd.getpwnam(spawner.user.name)
    teaches = grp.getgrnam("instructors").gr_gid in os.getgrouplist(user.pw_name, user.pw_gid)
    folders = [HERE / "jupyter"] if teaches else [HERE / "students", HERE / "jupyter"]
    spawner.environment = spawner.environment | {"JUPYTER_CONFIG_PATH": os.pathsep.join(map(str, folders))}


c.Spawner.pre_spawn_hook = settings
