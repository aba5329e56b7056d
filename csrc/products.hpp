// Sums over all rows: parameter gradients as products of two tall matrices, A'B = sum_r A[r]'B[r].
//
//     for each thread's columns of B, for each 256 rows, for each tile of C:  C += A[rows, i]'B[rows, j]
//
// B's vectors and A's single numbers are read where they lie: their strides are long but regular. Each 256 rows are summed
// in registers before they are added to C, which bounds the rounding error. States before each row, where they are not
// rows of the caller's (first step, base, z kept instead of h, sequences that end), are gathered 256 at a time.
#pragma once

#include "chain.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr i64 rows_in_single_sum = 256;

// C[0:left, 0:columns] += scale * sum_k a[k, i] b[k, j] over `depth` values of k; a's steps are free, so that A may be
// transposed.
template <class T>
void add_product(i64 depth, const T* a, i64 a_step, i64 a_left, const T* b, i64 b_step, i64 left, i64 columns, T* c,
                 i64 c_row, T scale = T(1)) {
    constexpr int W = width<T>;
    constexpr i64 deep = rows_in_single_sum;
    alignas(64) T out[registers * W], edge[deep * W];
    if (left <= 0 || columns <= 0) return;
    for (i64 k0 = 0; k0 < depth; k0 += deep, a += deep * a_step, b += deep * b_step) {
        const i64 here = minimum(deep, depth - k0);
        const i64 whole = columns / W, rest = columns % W;
        // The last columns, which no whole vector covers, are copied where reading past them is harmless.
        for (i64 k = 0; k < (rest ? here : 0); ++k) store<T>(edge + k * W, load_part(b + k * b_step + whole * W, rest));
        const Split rows(left, rows_at_once);
        for (i64 part = 0; part < rows.parts; ++part) {
            const i64 i = rows.begin(part), n = rows.size(part), wide = columns_at_once(static_cast<int>(n));
            TileArguments<T> t{here, a + i * a_left, a_left, a_step, nullptr, b_step, nullptr, 0, out, 0};
            for (i64 j = 0; j < whole; j += wide) {
                const i64 vectors = minimum(wide, whole - j);
                t.b = b + j * W;
                t.c_row = vectors * W;
                tiles<T>.at[n][vectors](t);
                for (i64 r = 0; r < n; ++r)
                    for (i64 v = 0; v < vectors * W; v += W) {
                        T* target = c + (i + r) * c_row + j * W + v;
                        store_loose<T>(target, fma(broadcast(scale), load(out + r * vectors * W + v),
                                                   load_loose(target)));
                    }
            }
            if (!rest) continue;
            t.b = edge;
            t.b_step = W;
            t.c_row = W;
            tiles<T>.at[n][1](t);
            for (i64 r = 0; r < n; ++r) {
                T* target = c + (i + r) * c_row + whole * W;
                store_part(target, fma(broadcast(scale), load(out + r * W), load_part(target, rest)), rest);
            }
        }
    }
}

// The states before rows [r0, r0 + count), after the base where there is one.
template <class T>
struct Previous {
    const Gradient& call;
    const Chain<T>& chain;
    bool with_base;

    // The caller's own rows, where they serve as they are.
    const T* direct(i64 r0) const {
        const Rows& rows = call.rows;
        const bool plain = call.states && !rows.steps && !(with_base && chain.base);
        if (!plain || (r0 < rows.B && (r0 || !call.h0))) return nullptr;
        return r0 < rows.B ? nullptr : static_cast<const T*>(call.states) + (r0 - rows.B) * rows.N;
    }
    // Row r0 is row `b` of step t.
    void gather(i64 t, i64 b, i64 r0, i64 count, T* out, i64 stride, T* slots) const {
        const Rows& rows = call.rows;
        const i64 N = rows.N;
        i64 first = r0 - b;
        for (i64 i = 0; i < count; ++i) {
            T* target = out + i * stride;
            if (t == 0) {
                if (call.h0) copy(target, static_cast<const T*>(call.h0) + b * N, N);
                else clear(target, N);
            } else {
                const i64 row = first - running(rows, t - 1) + b;
                if (call.states) copy(target, static_cast<const T*>(call.states) + row * N, N);
                else activate(static_cast<const T*>(call.kept) + row * N, target, slots);
            }
            if (with_base && chain.base) {
                const i64 half = N / 2, other = chain.layout.first, offset = chain.layout.offset;
                for (i64 n = 0; n < half; ++n) {
                    const T x = target[n], y = target[other + n];
                    target[n] = chain.c[n] * x + chain.s[n] * y;
                    target[other + n] = chain.c[offset + n] * y + chain.s[offset + n] * x;
                }
                if (N % 2) target[half] *= chain.c[half];
            }
            if (++b == running(rows, t)) {
                first += b;
                b = 0;
                ++t;
            }
        }
    }
    void activate(const T* z, T* h, T* slots) const {  // h = phi(z); slots: room for three rows
        const i64 n = chain.layout.slots;
        const PassShared<T>& shared = chain.shared;
        const ForwardPass<T> pass{chain.zeros.data, z, z + chain.layout.first, h, slots, slots + n};
        chain.functions.forward(shared, pass);
    }
};

template <class T>
void gradient(const Gradient& call) {
    const Rows& rows = call.rows;
    const i64 N = rows.N, M = call.transition.M;
    const bool dense = call.dense != nullptr;
    const T* const delta = static_cast<const T*>(call.delta);
    const T* const h_tilde = static_cast<const T*>(call.h_tilde);
    const T* const C_tilde = static_cast<const T*>(call.C_tilde);
    if (dense) clear(static_cast<T*>(call.dense), N * N);
    Buffer<T> reflected(dense ? 1 : 2 * M * N);  // (d h~')' and (h C~')': reflections are the rows of the sums
    if (!dense) clear(static_cast<T*>(call.h_tilde_C_tilde), M * M);
    const Chain<T> chain(rows, call.transition, call.phi, 0);
    const Previous<T> previous{call, chain, !dense};
    // Columns of N in pieces of a tile's width, shared out among the threads.
    constexpr i64 piece = columns_at_once(rows_at_once) * width<T>;
    const i64 pieces = (N + piece - 1) / piece;
    const i64 work = rows.R * N * (dense ? N : 2 * M);
    const int parts = static_cast<int>(maximum<i64>(1, minimum<i64>(work < 200000 ? 1 : call.run.threads, pieces)));
    const i64 stride = row_stride<T>(chain.layout.slots);
    Buffer<T> gathered(parts * rows_in_single_sum * stride), slots(parts * 3 * stride);
    const auto body = [&](int part) {
        const i64 c0 = pieces * part / parts * piece, c1 = minimum(N, pieces * (part + 1) / parts * piece);
        T* const buffer = gathered + part * rows_in_single_sum * stride;
        i64 t = 0, b = 0;
        for (i64 r = 0; r < rows.R;) {
            i64 count = minimum(rows_in_single_sum, rows.R - r);
            if (r < rows.B) count = minimum(count, rows.B - r);  // the first step alone: its states are h0
            const T* h = previous.direct(r);
            i64 h_row = N;
            if (!h) {
                previous.gather(t, b, r, count, buffer, stride, slots + part * 3 * stride);
                h = buffer;
                h_row = stride;
            }
            if (dense) {
                add_product(count, delta + r * N, N, i64(1), h + c0, h_row, N, c1 - c0,
                            static_cast<T*>(call.dense) + c0, N);
            } else {
                add_product(count, h_tilde + r * M, M, i64(1), delta + r * N + c0, N, M, c1 - c0, reflected + c0, N);
                add_product(count, C_tilde + r * M, M, i64(1), h + c0, h_row, M, c1 - c0, reflected + M * N + c0, N);
                if (part == parts - 1)
                    add_product(count, h_tilde + r * M, M, i64(1), C_tilde + r * M, M, M, M,
                                static_cast<T*>(call.h_tilde_C_tilde), M);
            }
            r += count;
            for (i64 left = count; left > 0;) {
                const i64 here = minimum(left, running(rows, t) - b);
                b += here;
                left -= here;
                if (b == running(rows, t)) {
                    b = 0;
                    ++t;
                }
            }
            if (should_stop(call.run.interrupt, part)) return;
        }
    };
    run_parts(parts, call.run.threads, body);
    if (!dense) {
        T* const d = static_cast<T*>(call.d_h_tilde);
        T* const h = static_cast<T*>(call.h_C_tilde);
        for (i64 n = 0; n < N; ++n)
            for (i64 m = 0; m < M; ++m) {
                d[n * M + m] = reflected[m * N + n];
                h[n * M + m] = reflected[(M + m) * N + n];
            }
    }
}

// dL/dV = sum delta x' and dL/dbias = sum delta; for tokens, delta added to the row of each token.
template <class T>
void input_gradient(const InputGradient& call) {
    const i64 N = call.N, I = call.input.kind == InputKind::projected ? 0 : call.input.size, R = call.R;
    const bool tokens = call.input.kind == InputKind::tokens;
    const T* const delta = static_cast<const T*>(call.delta);
    const i64 columns = tokens ? I : I + 1;
    Buffer<T> sums((tokens ? 1 : columns) * N);
    Buffer<double> wide(tokens ? columns * N : 1);
    const int parts = static_cast<int>(maximum<i64>(1, R * N < 200000 ? 1 : call.run.threads));
    Buffer<T> numbers(parts * rows_in_single_sum * columns);
    const auto body = [&](int part) {
        constexpr i64 piece = columns_at_once(rows_at_once) * width<T>;
        const i64 pieces = (N + piece - 1) / piece;
        const i64 c0 = pieces * part / parts * piece, c1 = minimum(N, pieces * (part + 1) / parts * piece);
        if (tokens) {
            const i64* const token = static_cast<const i64*>(call.input.rows);
            for (i64 r = 0; r < R; ++r) {
                double* const target = wide + token[r] * N;
                const T* const row = delta + r * N;
                for (i64 n = c0; n < c1; ++n) target[n] += static_cast<double>(row[n]);
                if (r % 65536 == 65535 && should_stop(call.run.interrupt, part)) return;
            }
            return;
        }
        // x and the one that stands for the bias, side by side.
        const T* const x = static_cast<const T*>(call.input.rows);
        T* const beside = numbers + part * rows_in_single_sum * columns;
        for (i64 r = 0; r < R; r += rows_in_single_sum) {
            const i64 count = minimum(rows_in_single_sum, R - r);
            for (i64 k = 0; k < count; ++k) {
                copy(beside + k * columns, x + (r + k) * I, I);
                beside[k * columns + I] = 1;
            }
            add_product(count, beside, columns, i64(1), delta + r * N + c0, N, columns, c1 - c0, sums + c0, N);
            if (should_stop(call.run.interrupt, part)) return;
        }
    };
    run_parts(parts, call.run.threads, body);
    T* const weight = static_cast<T*>(call.weight);
    T* const bias = static_cast<T*>(call.bias);
    for (i64 n = 0; n < N; ++n) {
        double total = 0;
        for (i64 i = 0; i < I; ++i) {
            if (tokens) total += wide[i * N + n];
            if (weight) weight[n * I + i] = tokens ? static_cast<T>(wide[i * N + n]) : sums[i * N + n];
        }
        if (bias) bias[n] = tokens ? static_cast<T>(total) : sums[I * N + n];
    }
}

}  // namespace orthornn::ORTHORNN_ISA
