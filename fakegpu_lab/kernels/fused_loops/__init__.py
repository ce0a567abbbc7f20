"""What Inductor's fused kernels compute, worked out on whole tensors. Start with `writing`.

Inductor describes each kernel as loops before it prints them in Triton's language. `writing` prints the same loops as a
function over whole tensors, and keeps it beside Inductor's own files; `values` runs that function, `drawing` has the
random numbers of Triton's generator. Launched kernels take their values from there, at the speed of ops that are not
compiled; where a kernel has no such function, its programs run one by one (`kernels.triton_programs`).

May import `hardware`, `driver.base` and `user_code`.
"""
