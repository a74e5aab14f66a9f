# ruff: noqa: B905, N812 - strict zips are not what SGLang's own kernels promise; F is torch's own habit
"""Plain PyTorch stand-in for the CPU build of sgl-kernel (which has no wheel on PyPI and
wants AMX).  It holds only what SGLang 0.5.23 needs on a CPU without AMX for Llama-shaped
full-attention models, plain or with STANDALONE / EAGLE / NGRAM speculation.  SGLang's own
files are untouched; anything not written here raises NotImplementedError when called.
`convert_weight_packed` must stay absent: SGLang takes its presence as "AMX kernels exist".
"""

import ctypes

import torch
import torch.nn.functional as F


# ---------------------------------------------------------------- slots and request table
def _segments(rows, table, starts, ends):
    """Views table[row, start:end], one per request."""
    for r, s, e in zip(rows.tolist(), starts.tolist(), ends.tolist()):
        yield table[r, s:e]


def assign_extend_cache_locs_cpu(rows, table, starts, ends, out, pool_len):
    at = 0
    for seg in _segments(rows, table, starts, ends):
        out[at : at + seg.numel()] = seg
        at += seg.numel()


def assign_draft_cache_locs_contiguous_cpu(rows, table, seq_lens, out, pool_len, topk, num_steps):
    assign_extend_cache_locs_cpu(rows, table, seq_lens, seq_lens + topk * num_steps, out, pool_len)


def assign_req_to_token_pool_cpu(rows, table, starts, ends, locs, pool_len):
    at = 0
    for seg in _segments(rows, table, starts, ends):
        seg.copy_(locs[at : at + seg.numel()])
        at += seg.numel()


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, dst, src):
    src, dst = src.tolist(), dst.tolist()
    for base, width in zip(data_ptrs.tolist(), strides.tolist()):
        rows = [ctypes.string_at(base + s * width, width) for s in src]  # read all, then write
        for d, row in zip(dst, rows):
            ctypes.memmove(base + d * width, row, width)


# ---------------------------------------------------------------- draft tree and its check
def build_tree_kernel_efficient_cpu(
    parent_list, selected, seq_lens, mask, positions, index, next_token, next_sibling, topk, depth, n, mode
):
    lens, sel, par = seq_lens.tolist(), selected.tolist(), parent_list.tolist()
    full, base = int(mode) == 0, 0
    if int(mode) not in (0, 1):
        raise NotImplementedError("bit-packed tree mask")
    for b, length in enumerate(lens):
        node_of = {cand: i + 1 for i, cand in enumerate(sel[b][: n - 1])}
        parent = [-1] * n
        for i in range(1, n):
            group = sel[b][i - 1] // topk  # 0: child of the root, else row of parent_list
            parent[i] = 0 if group == 0 else node_of.get(par[b][group], -1)
        first, sibling = [-1] * n, [-1] * n
        for i in range(n - 1, 0, -1):  # backwards, so that the first child ends up in front
            if parent[i] >= 0:
                sibling[i], first[parent[i]] = first[parent[i]], i
        sees, pos = torch.zeros(n, n, dtype=mask.dtype), []
        for i in range(n):
            sees[i, 0] = 1
            j, d = i, 0
            while j > 0:
                sees[i, j] = 1
                j, d = parent[j], d + 1
            pos.append(length + d)
        index[b] = torch.arange(b * n, b * n + n)
        next_token[b], next_sibling[b] = torch.tensor(first), torch.tensor(sibling)
        positions[b * n : b * n + n] = torch.tensor(pos)
        width = length + n if full else n
        mask[base : base + n * width].view(n, width)[:, width - n :] = sees
        base += n * width


def reconstruct_indices_from_tree_mask(mask, seq_lens, positions, index, next_token, next_sibling, batch_size, n):
    order = torch.arange(n)
    pos, idx = positions.view(-1), index.view(-1)
    nxt, sib = next_token.view(-1), next_sibling.view(-1)
    for b in range(batch_size):
        above = mask.view(-1)[b * n * n : (b + 1) * n * n].view(n, n).bool() & (order < order[:, None])
        parent = torch.where(above, order, -1).amax(1).tolist()
        at = b * n
        pos[at : at + n] = above.sum(1) + seq_lens[b]
        idx[at : at + n] = torch.arange(at, at + n)
        for i in range(n):
            kids = above[:, i].nonzero().flatten().tolist()
            nxt[at + i] = kids[0] if kids else -1
            later = [k for k in range(i + 1, n) if parent[i] >= 0 and parent[k] == parent[i]]
            sib[at + i] = later[0] if later else -1


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    target = target_predict.flatten().tolist()
    cand, index = candidates.tolist(), retrive_index.tolist()
    nxt, sib = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for b in range(len(cand)):
        node, last, path = 0, index[b][0], [index[b][0]]
        while len(path) < accept_index.shape[1]:
            node = nxt[b][node]
            while node != -1 and cand[b][node] != target[last]:
                node = sib[b][node]
            if node == -1:
                break
            predicts[last] = target[last]
            last = index[b][node]
            path.append(last)
        predicts[last] = target[last]  # the bonus token
        accept_index[b, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[b] = len(path) - 1


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, stride):
    rows = torch.arange(accept_lens.numel()) * stride
    bonus_tokens.copy_(accept_tokens.flatten()[rows + accept_lens.long() - 1])


def fill_accept_out_cache_loc_cpu(accept_index, locs, out):
    kept = accept_index.flatten()
    kept = kept[kept > -1].long()
    out[: kept.numel()] = locs[kept].to(out.dtype)


def rotate_input_ids_cpu(ids, starts, lens, topk_index, select_index=None):
    for b, (s, n) in enumerate(zip(starts.tolist(), lens.tolist())):
        ids[s : s + n - 1] = ids[s + 1 : s + n].clone()
        ids[s + n - 1 if select_index is None else int(select_index[b])] = topk_index.flatten()[b]


# ---------------------------------------------------------------- attention
def build_draft_decode_metadata_cpu(table, rows, seq_lens, topk, num_steps, pool_len):
    out = torch.zeros(rows.numel() * topk, table.shape[1], dtype=table.dtype)
    for b, (r, n) in enumerate(zip(rows.tolist(), seq_lens.tolist())):
        for t in range(topk):
            own = table[r, n + t * num_steps : n + (t + 1) * num_steps]
            out[b * topk + t, :n] = table[r, :n]
            out[b * topk + t, n : n + own.numel()] = own
    return out


def _attend(q, k, v, scale, see):
    """q [m, H, D]; k, v [n, Hkv, D]; see None or bool [m, n]; gives [m, H, Dv]."""
    q, k, v = (x.transpose(0, 1)[None].to(q.dtype) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=see, scale=scale, enable_gqa=q.shape[1] != k.shape[1])[
        0
    ].transpose(0, 1)


def _only_plain(k_scale, v_scale, cap, cross, window, encoder_lens, sinks):
    if k_scale != 1.0 or v_scale != 1.0 or cap or cross or window > 0 or encoder_lens is not None or sinks is not None:
        raise NotImplementedError("shim attention: plain self-attention only")


def decode_attention_cpu(
    q,
    k_buf,
    v_buf,
    k_scale,
    v_scale,
    out,
    k,
    v,
    locs,
    logits,
    table,
    rows,
    seq_lens,
    scale,
    cap,
    cross,
    window,
    encoder_lens=None,
    sinks=None,
):
    _only_plain(k_scale, v_scale, cap, cross, window, encoder_lens, sinks)
    if k is not None:  # unlike extend, decode stores the new keys and values itself
        k_buf[locs] = k.reshape(-1, *k_buf.shape[1:]).to(k_buf.dtype)
        v_buf[locs] = v.reshape(-1, *v_buf.shape[1:]).to(v_buf.dtype)
    for b, (r, n) in enumerate(zip(rows.tolist(), seq_lens.tolist())):
        slots = table[r, :n].long()
        out[b : b + 1] = _attend(q[b : b + 1], k_buf[slots], v_buf[slots], scale, None)


def extend_attention_cpu(
    q,
    k,
    v,
    out,
    k_buf,
    v_buf,
    k_scale,
    v_scale,
    table,
    rows,
    seq_lens,
    extend_lens,
    extend_starts,
    max_extend,
    scale,
    cap,
    cross,
    window,
    encoder_lens=None,
    sinks=None,
    tree_mask=None,
    causal=True,
):
    _only_plain(k_scale, v_scale, cap, cross, window, encoder_lens, sinks)
    spans = zip(rows.tolist(), seq_lens.tolist(), extend_lens.tolist(), extend_starts.tolist())
    for b, (r, n, m, s) in enumerate(spans):
        if m == 0:
            continue
        slots = table[r, :n].long()
        see = torch.ones(m, n, dtype=torch.bool)
        if tree_mask is not None:
            if tree_mask.numel() != seq_lens.numel() * m * m:
                raise NotImplementedError("shim attention: QLEN_ONLY tree mask only")
            see[:, n - m :] = tree_mask[b * m * m : (b + 1) * m * m].view(m, m).bool()
        elif causal:
            see[:, n - m :] = torch.ones(m, m, dtype=torch.bool).tril()
        out[s : s + m] = _attend(q[s : s + m], k_buf[slots], v_buf[slots], scale, see)


torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu
torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*a, **k):
        raise NotImplementedError("shim sgl_kernel." + name)

    missing.__name__ = name
    return missing
