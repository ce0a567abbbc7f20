"""Other people's libraries, unmodified, on simulated GPUs. Nothing is downloaded: models are tiny, weights random."""
