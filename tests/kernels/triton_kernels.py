"""Our own kernels after Triton's tutorials: vector addition, softmax, matrix product, layer norm, attention."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        offsets = tl.arange(0, BLOCK)
        mask = offsets < columns
        values = tl.load(in_ptr + row * in_stride + offsets, mask=mask, other=-float("inf"))
        numerator = tl.exp(values - tl.max(values, axis=0))
        tl.store(out_ptr + row * out_stride + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr = "",
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first_m = pid // in_group * GROUP_M
    group_size = min(tiles_m - first_m, GROUP_M)
    pid_m = first_m + pid % in_group % group_size
    pid_n = pid % in_group // group_size
    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * stride_am + inner[None, :] * stride_ak
    b = b_ptr + inner[:, None] * stride_bk + columns[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = tl.load(a, mask=inner[None, :] < K - k * BLOCK_K, other=0.0)
        right = tl.load(b, mask=inner[:, None] < K - k * BLOCK_K, other=0.0)
        total = tl.dot(left, right, total)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


tuned_matmul_kernel = triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 8}, num_warps=1, num_stages=2),
    ],
    key=["M", "N", "K"],
)(matmul_kernel)


@triton.jit
def layer_norm_forward(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    mean = tl.zeros([BLOCK], dtype=tl.float32)
    for begin in range(0, N, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        mean += tl.load(X + columns, mask=columns < N, other=0.0).to(tl.float32)
    mean = tl.sum(mean, axis=0) / N
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for begin in range(0, N, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        x = tl.load(X + columns, mask=columns < N, other=0.0).to(tl.float32)
        x = tl.where(columns < N, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for begin in range(0, N, BLOCK):
        columns = begin + tl.arange(0, BLOCK)
        mask = columns < N
        w = tl.load(W + columns, mask=mask)
        b = tl.load(B + columns, mask=mask)
        x = tl.load(X + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + columns, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def layer_norm_backward_x(
    DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUP
    Lock += lock_id
    Count = Lock + GROUP
    DW = DW + lock_id * N + columns
    DB = DB + lock_id * N + columns
    x = tl.load(X + columns, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + columns, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + columns, mask=mask).to(tl.float32)
    rstd = tl.load(Rstd + row)
    xhat = (x - tl.load(Mean + row)) * rstd
    wdy = w * dy
    xhat = tl.where(mask, xhat, 0.0)
    wdy = tl.where(mask, wdy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    tl.store(DX + columns, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    partial_db = dy.to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def layer_norm_backward_w(DW, DB, FINAL_DW, FINAL_DB, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for begin in range(0, M, BLOCK_M):
        rows = begin + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        offsets = rows[:, None] * N + columns[None, :]
        dw += tl.load(DW + offsets, mask=mask, other=0.0)
        db += tl.load(DB + offsets, mask=mask, other=0.0)
    tl.store(FINAL_DW + columns, tl.sum(dw, axis=0), mask=columns < N)
    tl.store(FINAL_DB + columns, tl.sum(db, axis=0), mask=columns < N)


@triton.jit
def attention_inner(acc, l_i, m_i, q, K, V, scale, lo, hi, rows, D: tl.constexpr, BLOCK_N: tl.constexpr,
                    MASKED: tl.constexpr):  # fmt: skip
    inner = tl.arange(0, D)
    for start in range(lo, hi, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        k = tl.load(K + columns[None, :] * D + inner[:, None])
        scores = tl.dot(q, k) * scale
        if MASKED:
            scores = scores + tl.where(rows[:, None] >= columns[None, :], 0, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(scores, 1))
        p = tl.math.exp2(scores - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + columns[:, None] * D + inner[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def attention_forward(Q, K, V, M, Out, scale, N_CTX, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                      CAUSAL: tl.constexpr):  # fmt: skip
    start_m = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * N_CTX * D
    Q += head
    K += head
    V += head
    rows = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    inner = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + inner[None, :])
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    l_i = l_i * 0
    acc = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    scale *= 1.44269504
    if CAUSAL:
        diagonal = start_m * BLOCK_M
        acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, K, V, scale, 0, diagonal, rows, D, BLOCK_N, False)
        acc, l_i, m_i = attention_inner(
            acc, l_i, m_i, q, K, V, scale, diagonal, diagonal + BLOCK_M, rows, D, BLOCK_N, True
        )
    else:
        acc, l_i, m_i = attention_inner(acc, l_i, m_i, q, K, V, scale, 0, N_CTX, rows, D, BLOCK_N, False)
    acc = acc / l_i[:, None]
    tl.store(M + tl.program_id(1) * N_CTX + rows, m_i + tl.math.log2(l_i))
    tl.store(Out + head + rows[:, None] * D + inner[None, :], acc.to(Out.type.element_ty))
