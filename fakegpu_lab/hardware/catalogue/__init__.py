"""Profiles of GPUs and machines: finding, reading and validating them. Start with `profile`.

`profile` has the pydantic models that validate a YAML file, `validation_errors` turns their errors into one sentence;
`lookup` finds a file by a name as people write it; `spec` parses "a100:2,t4", `sizes` parses "2GiB"; `visible_devices`
applies CUDA_VISIBLE_DEVICES.

Imports nothing else of `hardware` but `errors`.
"""
