// What the kernels of input-dependent reflections take; no code. Rows are those of kernels.hpp.
//
//     h_t = phi(g_t o (H_M ... H_1 R_t h_{t-1}) + a_t),    H_i = I - beta_i k_i k_i' / max(k_i'k_i, shortest^2)
//
// k, beta, g, R and a of a step are a row of tables with S rows: row index[r] for row r of the sequence, or row r itself.
// With several heads H_i is block diagonal: head j has units [j N / heads, (j + 1) N / heads) and a beta of its own.
// R turns the pairs (i, N - N / 2 + i) by an angle each.
#pragma once

#include "kernels.hpp"

namespace orthornn {

constexpr double shortest_reflector = 1e-6;
// A longer one is scaled by a power of two, which changes no reflection: else its square, or 1 over it, leaves T's range.
constexpr double longest_reflector = 0x1p20;

struct ReflectionTables {
    i64 M, heads, S;
    const i64* index;  // (R,), or null where S is R
    const void* k;     // (S, M, N)
    const void* beta;  // (S, M, heads)
    const void* gate;  // (S, gates), or null for 1
    i64 gates;         // heads or N
    const void* turn;  // (turns, 4, N / 2): cosine, what its rounding lost, sine and what its rounding lost; or null
    i64 turns;         // 1 or S
    const void* add;   // (S, N), or null for 0
    double* inverse;   // (S, M, heads): 1 / max(k'k, shortest^2), negative and of the scaled k where k is longer than
                       // longest_reflector; written by the forward pass
};

struct ReflectionForward {
    Rows rows;
    Phi phi;
    ReflectionTables tables;
    const void* h0;  // (B, N) or null for zero
    const void* restart;  // likewise, where rows have resets
    void* states;    // (R, N) or null
    void* saved;     // (R, N) for kinds that keep z, or null
    void* last;      // (B, N) or null
    void* dots;      // (R, M, heads), k_i'x of every reflection, with k_i scaled where `inverse` is negative; or null
    Run run;
};

struct ReflectionBackward {
    Rows rows;
    Phi phi;
    ReflectionTables tables;
    double clip;
    const void* h0;           // as forward
    const void* restart;
    const void* states;       // (R, N)
    const void* saved;        // (R, N): states, or z for kinds that keep it
    const void* dots;         // (R, M, heads)
    const void* grad_states;  // (R, N) or null
    const void* grad_last;    // (B, N) or null
    void* grad_k;             // as the tables, each or null
    void* grad_beta;
    void* grad_gate;
    void* grad_angle;         // (turns, N / 2)
    void* grad_add;
    void* grad_h0;            // (B, N) or null
    void* grad_restart;       // likewise; zero for sequences that restart nowhere
    void* grad_parameter;     // as phi.parameter, or null
    Run run;
};

struct ReflectionTable {
    void (*forward)(const ReflectionForward&);
    void (*backward)(const ReflectionBackward&);
};

const ReflectionTable& reflections_table(Isa isa, i64 element_size);  // as `table` of kernels.hpp

namespace portable {
extern const ReflectionTable reflections_float, reflections_double;
}
namespace avx2 {
extern const ReflectionTable reflections_float, reflections_double;
}
namespace avx512 {
extern const ReflectionTable reflections_float, reflections_double;
}

}  // namespace orthornn
