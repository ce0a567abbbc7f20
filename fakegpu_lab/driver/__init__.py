"""What makes torch see the simulated machine as CUDA."""
