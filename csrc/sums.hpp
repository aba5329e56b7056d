// Parameter gradients: sums over all rows, made while the rows of the chain are still in the cache.
//
//     dense:    dL/dW  = sum delta h'
//     compact:  sum h~ C~',  sum d h~',  sum h' C~'      (h after the base)
//     input:    dL/dV  = sum delta x',  dL/db = sum delta;  for tokens, delta added to the row of each token
//
// A part of the sequences collects up to 256 rows of delta, C~ and pointers to the states before them, then adds their
// products to its own sums: for each few columns of one factor, packed once, and each few of the other, packed once,
//     C += A'B    (register block of 14 x 2 or 6 x 2 vectors, depth 256)
// so that delta and C~ need no memory for all R rows, and threads do not wait for one another. 256 rows are summed in
// registers before they are added to C, which bounds the rounding error.
#pragma once

#include "panels.hpp"
#include "passes.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr i64 rows_in_single_sum = 256;

// C (left, columns) += sum_k a[k][i] b[k][j] for rows given by pointers. C's rows are padded to whole vectors.
template <class T>
struct RowProduct {
    static constexpr i64 W = width<T>;
    Buffer<T> left_pack, right_pack, out;

    void reserve(i64 left) {
        left_pack.reserve(rows_in_single_sum * left + W);
        right_pack.reserve(rows_in_single_sum * panel_limit * W);
        out.reset(registers * W);
    }
    void add(i64 depth, const T* const* a, i64 left, const T* const* b, i64 columns, T* c, i64 c_row) {
        if (left == 0 || depth == 0) return;
        const Split rows(left, rows_at_once);
        for (i64 part = 0; part < rows.parts; ++part) {
            const i64 begin = rows.begin(part), n = rows.size(part);
            T* to = left_pack + begin * depth;
            for (i64 k = 0; k < depth; ++k, to += n)  // what is written too far is written over, by the next row
                for (i64 i = 0; i < n; i += W) store_loose<T>(to + i, load_part(a[k] + begin + i, minimum<i64>(W, n - i)));
        }
        const i64 wide = columns_at_once(static_cast<int>(rows.size(rows.parts - 1)));
        for (i64 j = 0; j < columns; j += wide * W) {
            const i64 vectors = minimum(wide, (columns - j + W - 1) / W);
            pack_right(depth, b, j, columns - j, vectors);
            for (i64 part = 0; part < rows.parts; ++part) {
                const i64 begin = rows.begin(part), n = rows.size(part);
                for (i64 i = 0; i < n; ++i)  // C may lie far away; it is needed when the tile is done
                    for (i64 v = 0; v < vectors * vector_bytes; v += 64)
                        __builtin_prefetch(reinterpret_cast<const char*>(c + (begin + i) * c_row + j) + v, 1);
                tiles<T>.at[n][vectors]({depth, left_pack + begin * depth, 1, n, right_pack.data, vectors * W, nullptr, 0,
                                         out.data, vectors * W});
                for (i64 i = 0; i < n; ++i)
                    for (i64 v = 0; v < vectors * W; v += W) {
                        T* target = c + (begin + i) * c_row + j + v;
                        store<T>(target, load(target) + load(out + i * vectors * W + v));
                    }
            }
        }
    }

private:
    void pack_right(i64 depth, const T* const* b, i64 j, i64 rest, i64 vectors) {
        T* to = right_pack.data;
        const i64 whole = minimum(vectors, rest / W);
        for (i64 k = 0; k < depth; ++k) {
            const T* from = b[k] + j;
            for (i64 v = 0; v < whole; ++v, to += W) store<T>(to, load_loose(from + v * W));
            if (whole < vectors) {
                store<T>(to, load_part(from + whole * W, rest - whole * W));
                to += W;
            }
        }
    }
};

// What is wanted of a backward pass besides the chain.
template <class T>
struct Wanted {
    bool weight, reflectors, input, tokens;
    i64 inputs;  // I where x is raw
    explicit Wanted(const Backward& call)
        : weight(call.grad_W != nullptr), reflectors(call.grad_reflectors != nullptr),
          input(call.grad_weight_ih || call.grad_bias),
          tokens(call.input.kind == InputKind::tokens && call.grad_weight_ih),
          inputs(call.input.kind == InputKind::raw && call.grad_weight_ih ? call.input.size : 0) {}
    bool any() const { return weight || reflectors || input; }
};

// The sums of one part.
template <class T>
struct RowSums {
    static constexpr i64 W = width<T>;
    const Backward& call;
    const PassFunctions<T>& functions;
    const PassShared<T>& shared;
    const T* zeros;
    const Wanted<T> wanted;
    const i64 N, M, columns, inner_columns, beside_count, tokens;
    const bool copies_states;  // the states before the rows are not the caller's own rows
    Buffer<T> outer;           // (N, columns) sum delta h', or (M, columns) sum C~ h'
    Buffer<T> beside;          // (M + I + 1, columns): sums of delta with h~, x and 1
    Buffer<T> inner;           // (M, inner_columns): sum h~ C~'
    Buffer<double> by_token;   // (tokens that occur, N)
    const std::int32_t* place;
    RowProduct<T> product;
    // The rows collected so far.
    i64 count = 0;
    Buffer<const T*> delta, before, C_tilde, left;
    Buffer<T> left_rows, states, scratch;
    Buffer<i64> index;

    RowSums(const Backward& c, const PassFunctions<T>& f, const PassShared<T>& s, const T* zero_row, i64 reflections,
            const std::int32_t* places, i64 occurring)
        : call(c), functions(f), shared(s), zeros(zero_row), wanted(c), N(c.rows.N),
          M(wanted.reflectors ? reflections : 0), columns(round_up(N, W)), inner_columns(round_up(M, W)),
          beside_count(M + (wanted.input ? wanted.inputs + (call.grad_bias && !wanted.tokens) : 0)),
          tokens(wanted.tokens ? occurring : 0),
          copies_states((wanted.weight || wanted.reflectors) && (s.c != nullptr || !c.states)), place(places) {
        if (!wanted.any()) return;
        outer.reset((wanted.weight ? N : M) * columns);
        beside.reset(beside_count * columns);
        inner.reset(M * inner_columns);
        if (wanted.tokens) by_token.reset(tokens * N);
        product.reserve(maximum(wanted.weight ? N : M, beside_count));
        delta.reset(rows_in_single_sum);
        before.reset(rows_in_single_sum);
        C_tilde.reset(rows_in_single_sum);
        left.reset(rows_in_single_sum);
        index.reset(rows_in_single_sum);
        left_rows.reserve(rows_in_single_sum * beside_count);
        if (copies_states) states.reserve(rows_in_single_sum * N);
        scratch.reserve(3 * maximum(shared.layout.slots, N));
    }

    // Row `row` of R with the state before it: the caller's state or, where only z is kept, `z` of the step before.
    void append(i64 row, const T* delta_row, const T* C_row, const T* state, const T* z) {
        const i64 k = count++;
        delta[k] = delta_row;
        C_tilde[k] = C_row;
        index[k] = row;
        before[k] = state ? state : zeros;
        if (copies_states) {
            T* const h = states + k * N;
            if (z && !state) functions.forward(shared, {zeros, z, z + shared.layout.first, h, scratch.data,
                                                        scratch + shared.layout.slots}, 0, shared.layout.offset);
            else copy(h, before[k], N);
            if (shared.c) apply_base(h);
            before[k] = h;
        }
        if (count == rows_in_single_sum) flush();
    }

    void flush() {
        if (count == 0) return;
        for (i64 k = 0; k < count; ++k) {
            T* const to = left_rows + k * beside_count;
            left[k] = to;
            if (M) copy(to, static_cast<const T*>(call.h_tilde) + index[k] * M, M);
            if (wanted.inputs) copy(to + M, static_cast<const T*>(call.input.rows) + index[k] * wanted.inputs, wanted.inputs);
            if (beside_count > M + wanted.inputs) to[M + wanted.inputs] = 1;
        }
        product.add(count, left.data, beside_count, delta.data, N, beside.data, columns);
        if (wanted.weight) product.add(count, delta.data, N, before.data, N, outer.data, columns);
        if (M) {
            product.add(count, C_tilde.data, M, before.data, N, outer.data, columns);
            product.add(count, left.data, M, C_tilde.data, M, inner.data, inner_columns);
        }
        if (wanted.tokens) {
            const i64* const token = static_cast<const i64*>(call.input.rows);
            for (i64 k = 0; k < count; ++k) {
                double* const to = by_token + (place[token[index[k]]] - 1) * N;
                const T* const from = delta[k];
                for (i64 n = 0; n < N; ++n) to[n] += static_cast<double>(from[n]);
            }
        }
        count = 0;
    }

    // The sums of another part.
    void add(const RowSums& other) {
        for (i64 i = 0; i < (wanted.weight ? N : M) * columns; ++i) outer[i] += other.outer[i];
        for (i64 i = 0; i < beside_count * columns; ++i) beside[i] += other.beside[i];
        for (i64 i = 0; i < M * inner_columns; ++i) inner[i] += other.inner[i];
        for (i64 i = 0; i < tokens * N; ++i) by_token[i] += other.by_token[i];
    }

private:
    void apply_base(T* h) const {
        const i64 half = N / 2, other = shared.layout.first, offset = shared.layout.offset;
        const T* const c = shared.c;
        const T* const s = shared.s;
        for (i64 n = 0; n < half; ++n) {
            const T x = h[n], y = h[other + n];
            h[n] = c[n] * x + s[n] * y;
            h[other + n] = c[offset + n] * y + s[offset + n] * x;
        }
        if (N % 2) h[half] *= c[half];
    }
};

}  // namespace orthornn::ORTHORNN_ISA
