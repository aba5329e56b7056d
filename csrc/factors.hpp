// The factors of the compact form and the way back through them, in float64 whatever the caller's type.
//
//     packed -> U, columns of norm sqrt 2;   T = striu(U'U) + diag(U'U)/2;   S = T^-1
//     dL/dU = U K - sum d h~' - sum h C~',  K[i, j] = (sum h~C~')[max(i, j), min(i, j)];   then through the scaling
//
// K is G o Z' + G' o Z of Theorem 2: it takes the lower triangle of G = sum h~C~' on both sides. Column j of packed
// reflectors starts with j zeros: about two thirds of the products with them are left out.
#pragma once

#include "sums.hpp"

namespace orthornn::ORTHORNN_ISA {

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

constexpr double negligible = 1e-30;
constexpr double root_two = 1.4142135623730951;

// U (N, M) in float64 and, for packed reflectors, what each column was multiplied with: a power of two, then a number of
// moderate size. Both are normal whatever the column (backward, others count as zero); 0 where it is negligible.
template <class T>
struct WideReflectors {
    i64 N, M;
    bool packed;
    Buffer<double> U, power, scale;

    WideReflectors(i64 n, i64 m, const void* packed_in, const void* free)
        : N(n), M(m), packed(packed_in != nullptr), U(n * m), power(m), scale(m) {
        if (!packed) {
            for (i64 i = 0; i < n * m; ++i) U[i] = static_cast<double>(static_cast<const T*>(free)[i]);
            return;
        }
        const T* const p = static_cast<const T*>(packed_in);
        for (i64 j = 0; j < M; ++j) {
            const T* const u = p + start(j);
            const double largest = greatest_size(u, N - j);
            if (largest <= negligible) continue;
            int exponent = 0;
            __builtin_frexp(largest, &exponent);
            const double down = __builtin_ldexp(1.0, -minimum(exponent, 1000));  // exact: squares stay in range
            Vector<double> squares = zero<double>();
            i64 i = 0;
            for (; i + width<double> <= N - j; i += width<double>) {
                Vector<double> x;
                for (int k = 0; k < width<double>; ++k) x[k] = static_cast<double>(u[i + k]) * down;
                squares = fma(x, x, squares);
            }
            double sum = 0;
            for (int k = 0; k < width<double>; ++k) sum += squares[k];
            for (; i < N - j; ++i) sum += static_cast<double>(u[i]) * down * (static_cast<double>(u[i]) * down);
            power[j] = down;
            scale[j] = root_two / __builtin_sqrt(sum);
            if (!(largest <= __DBL_MAX__)) scale[j] = __builtin_nan("");  // an infinite entry has no direction
        }
        by_rows([&](i64 j, i64 n, i64 at) { U[n * M + j] = static_cast<double>(p[at]) * power[j] * scale[j]; });
    }
    // max |u_i|; NaN where there is one. Without their sign the bits of numbers are in the numbers' order, NaN last.
    static double greatest_size(const T* u, i64 count) {
        constexpr i64 W = width<T>;
        Bits<T> greatest{};
        for (i64 i = 0; i < count; i += W) {
            const Vector<T> part = i + W <= count ? load_loose(u + i) : load_part(u + i, count - i);
            const Bits<T> size = (Bits<T>)absolute(part);
            greatest = size > greatest ? size : greatest;
        }
        const Vector<T> sizes = (Vector<T>)greatest;
        T result = 0;
        for (int k = 0; k < W; ++k) result = sizes[k] > result || sizes[k] != sizes[k] ? sizes[k] : result;
        return static_cast<double>(result);
    }
    i64 start(i64 j) const { return j * N - j * (j - 1) / 2; }

    // visit(j, n, where (n, j) is packed) for the trapezoid, 16 columns at a time so that rows are touched in pieces.
    template <class Visit>
    void by_rows(const Visit& visit) const {
        for (i64 j0 = 0; j0 < M; j0 += 16) {
            const i64 j1 = minimum(j0 + 16, M);
            i64 at[16];
            for (i64 j = j0; j < j1; ++j) at[j - j0] = start(j) - j;
            for (i64 n = j0; n < N; ++n)
                for (i64 j = j0; j < minimum(j1, n + 1); ++j) visit(j, n, at[j - j0] + n);
        }
    }
};

// S = T^-1 for upper triangular T (size, size) within rows of `row` numbers; `room` has size^2 / 4 numbers.
inline void invert_upper(i64 size, const double* T, double* S, i64 row, double* room) {
    if (size <= 24) {
        for (i64 i = size - 1; i >= 0; --i) {
            double* const out = S + i * row;
            const double inverse = 1.0 / T[i * row + i];
            for (i64 k = i + 1; k < size; ++k) {
                const double factor = -inverse * T[i * row + k];
                for (i64 j = k; j < size; ++j) out[j] += factor * S[k * row + j];
            }
            out[i] = inverse;
        }
        return;
    }
    // [A B; 0 C]^-1 = [A^-1, -A^-1 B C^-1; 0, C^-1]
    const i64 top = (size / 2 + 7) / 8 * 8, rest = size - top;
    invert_upper(top, T, S, row, room);
    invert_upper(rest, T + top * row + top, S + top * row + top, row, room);
    clear(room, top * rest);
    for (i64 j = 0; j < rest; j += 32) {  // C^-1 is upper triangular: its column j ends at row j
        const i64 columns = minimum<i64>(32, rest - j);
        add_product<double>(j + columns, T + top, 1, row, S + top * row + top + j, row, top, columns, room + j, rest);
    }
    for (i64 i = 0; i < top; i += 4 * rows_at_once) {
        const i64 rows = minimum<i64>(4 * rows_at_once, top - i);
        add_product<double>(top - i, S + i * row + i, 1, row, room + i * rest, rest, rows, rest, S + i * row + top, row,
                            -1.0);
    }
}

template <class T>
void factors(const Factors& call) {
    const i64 N = call.N, M = call.M;
    const WideReflectors<T> wide(N, M, call.packed, call.free);
    const double* const U = wide.U.data;
    Buffer<double> gram(M * M), inverse(M * M), room(M * M / 4 + M + 64);
    constexpr i64 piece = 2 * width<double>;
    const i64 pieces = (M + piece - 1) / piece;
    const int parts = M < 128 ? 1 : call.run.threads;
    run_parts(parts, call.run.threads, [&](int part) {
        for (i64 p = part; p < pieces; p += parts) {
            const i64 j = p * piece, columns = minimum(piece, M - j), n = wide.packed ? j : 0;
            add_product<double>(N - n, U + n * M, M, 1, U + n * M + j, M, j + columns, columns, gram + j, M);
        }
    });
    for (i64 j = 0; j < M; ++j) {
        double& diagonal = gram[j * M + j];
        diagonal = diagonal == 0 ? 1 : diagonal / 2;
    }
    invert_upper(M, gram.data, inverse.data, M, room.data);
    T* const out_U = static_cast<T*>(call.U);
    T* const out_S = static_cast<T*>(call.S);
    for (i64 i = 0; i < N * M; ++i) out_U[i] = static_cast<T>(U[i]);
    for (i64 i = 0; i < M * M; ++i) out_S[i] = static_cast<T>(inverse[i]);
}

// dL/dU from the sums over rows: inner (M, .) = sum h~C~', d (M, .) = sum h~d' and h (M, .) = sum C~h'.
template <class T>
void reflector_gradient(const Backward& call, const T* G, i64 G_row, const T* D, const T* H, i64 row) {
    const i64 N = call.rows.N, M = call.transition.M;
    const WideReflectors<T> wide(N, M, call.packed, call.free);
    const double* const U = wide.U.data;
    Buffer<double> K(M * M), grad(N * M), along(M);
    for (i64 i = 0; i < M; ++i)
        for (i64 j = 0; j <= i; ++j) K[i * M + j] = K[j * M + i] = static_cast<double>(G[i * G_row + j]);
    constexpr i64 block = 4 * rows_at_once;
    const i64 blocks = (N + block - 1) / block;
    const int parts = M < 128 ? 1 : call.run.threads;
    run_parts(parts, call.run.threads, [&](int part) {
        for (i64 b = part; b < blocks; b += parts) {
            const i64 n = b * block, rows = minimum(block, N - n), reach = wide.packed ? minimum(M, n + rows) : M;
            for (i64 j = 0; j < reach; ++j)
                for (i64 i = n; i < n + rows; ++i)
                    grad[i * M + j] = -(static_cast<double>(D[j * row + i]) + static_cast<double>(H[j * row + i]));
            add_product<double>(reach, U + n * M, 1, M, K.data, M, rows, reach, grad + n * M, M);
        }
    });
    T* const out = static_cast<T*>(call.grad_reflectors);
    if (!wide.packed) {
        for (i64 i = 0; i < N * M; ++i) out[i] = static_cast<T>(grad[i]);
        return;
    }
    // dL/du = (g - v (v.g)/2) sqrt 2 / |u| for v = sqrt 2 u / |u|.
    for (i64 n = 0; n < N; ++n)
        for (i64 j = 0; j < minimum(M, n + 1); ++j) along[j] += U[n * M + j] * grad[n * M + j];
    wide.by_rows([&](i64 j, i64 n, i64 at) {
        out[at] = static_cast<T>((grad[n * M + j] - U[n * M + j] * along[j] / 2) * wide.scale[j] * wide.power[j]);
    });
}

}  // namespace orthornn::ORTHORNN_ISA
