"""Profiles of GPUs and machines: found, read, validated. Start with `profile`.

`profile` is the pydantic model that validates a YAML file, and `validation_errors` turns its complaints into one
sentence; `lookup` finds a file by the name people write; `spec` parses "a100:2,t4"; `sizes` parses "2GiB";
`visible_devices` applies CUDA_VISIBLE_DEVICES.

Imports nothing else of `hardware` but `errors`.
"""
