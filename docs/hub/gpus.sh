# Where everything of the course is, in every shell: copied to /etc/profile.d
export SOURCE=/srv/fakegpu_lab
export HUB=/srv/hub
export EXCHANGE=/srv/nbgrader/exchange
export CLASS=/srv/class
export PATH="/opt/gpus/bin:$PATH"
