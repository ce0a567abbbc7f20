"""For The Littlest JupyterHub: copied to /opt/tljh/config/jupyterhub_config.d/gpus.py.

TLJH makes a user of the system for each of the hub's, and its admins are the instructors.
"""

import os

c = get_config()  # noqa: F821 - JupyterHub defines it

HUB = os.environ.get("HUB", "/srv/hub")

c.Spawner.default_url = "/lab"
c.Spawner.environment = {
    "OMP_NUM_THREADS": "1",  # forty students on a few processors: threads would only wait for each other
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**20),  # glibc gives larger tensors back when they are freed
    "EXCHANGE": "/srv/nbgrader/exchange",
}


def settings(spawner):
    """Everyone has the course and its exchange; students do not have nbgrader's formgrader."""
    folders = [f"{HUB}/jupyter"] if spawner.user.admin else [f"{HUB}/students", f"{HUB}/jupyter"]
    spawner.environment = spawner.environment | {"JUPYTER_CONFIG_PATH": os.pathsep.join(folders)}


c.Spawner.pre_spawn_hook = settings
