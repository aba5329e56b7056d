// What the kernels of the delta rule take; no code. Rows are those of kernels.hpp; their N is not used.
//
//     S <- restart where the row resets;  S <- diag(g_t) S
//     S <- S - beta_i k^ (k^'S - v_i')  for i = 1 .. M,   k^ = k_i / max(|k_i|, shortest)
//     o_t = S'q_t
//
// S is (keys, values), one for each sequence and head. See ../docs/derivations/delta_rule.md.
#pragma once

#include "reflections_call.hpp"

namespace orthornn {

constexpr double shortest_key = shortest_reflector, longest_key = longest_reflector;

struct DeltaInputs {
    i64 M, heads, keys, values;
    i64 chunk;            // steps between two stored states
    const void* q;        // (R, heads, keys)
    const void* k;        // (R, M, heads, keys)
    const void* v;        // (R, M, heads, values)
    const void* beta;     // (R, M, heads)
    const void* gate;     // (R, heads, gates), or null for 1
    i64 gates;            // 1 or keys
    const void* start;    // (B, heads, keys, values)
    const void* restart;  // likewise where rows have resets, or null for zero
    bool products;        // by products over chunks of updates, not update by update
};

struct DeltaForward {
    Rows rows;
    DeltaInputs in;
    void* out;    // (R, heads, values)
    void* last;   // (B, heads, keys, values)
    void* marks;  // (chunks, B, heads, keys, values): the state before each chunk, or null
    Run run;
};

struct DeltaBackward {
    Rows rows;
    DeltaInputs in;
    const void* marks;
    const void* grad_out;   // (R, heads, values) or null
    const void* grad_last;  // (B, heads, keys, values) or null
    void* grad_q;           // as the inputs, each or null
    void* grad_k;
    void* grad_v;
    void* grad_beta;
    void* grad_gate;
    void* grad_start;
    void* grad_restart;     // zero for sequences that restart nowhere
    Run run;
};

struct DeltaTable {
    void (*forward)(const DeltaForward&);
    void (*backward)(const DeltaBackward&);
};

const DeltaTable& delta_table(Isa isa, i64 element_size);  // as `table` of kernels.hpp

namespace portable {
extern const DeltaTable delta_float, delta_double;
}
namespace avx2 {
extern const DeltaTable delta_float, delta_double;
}
namespace avx512 {
extern const DeltaTable delta_float, delta_double;
}

}  // namespace orthornn
