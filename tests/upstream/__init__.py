"""PyTorch's own tests, run on the simulated machine. `README.md` says how; pytest collects nothing here."""
