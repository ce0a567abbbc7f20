"""What device memory is for, and who holds it. Start with `categories`.

`categories` sorts live memory into parameters, gradients, activations, …; `live_categories` watches it while a program
runs; `references` names the variables that keep a tensor alive; `out_of_memory` gathers the facts at the moment of the
error.

May import `driver.tensor_api`, `driver.recorder` and everything below them.
"""
