// What the kernels of rotations over irregular time take; no code. Rows are those of kernels.hpp.
//
//     h_t = exp(-lambda dt_t) R(omega dt_t) h_{t-1} + x_t
//
// R turns the pairs (i, N - N / 2 + i) by an angle each; of an odd N the middle unit only decays. dt_t is a number for each
// row. Angles, rates and dt are of double whatever the states are.
#pragma once

#include "kernels.hpp"

namespace orthornn {

struct IrregularTransition {
    const double* angles;  // omega (N / 2,)
    const double* rates;   // lambda (N - N / 2,), the last that of the middle unit
    const double* dt;      // (R,)
};

struct IrregularForward {
    Rows rows;
    IrregularTransition transition;
    const void* x;        // (R, N)
    const void* h0;       // (B, N) or null for zero
    const void* restart;  // likewise, where rows have resets
    void* states;         // (R, N) or null
    void* last;           // (B, N)
    Run run;
};

struct IrregularBackward {
    Rows rows;
    IrregularTransition transition;
    const void* h0;  // as forward
    const void* restart;
    const void* states;       // (R, N)
    const void* grad_states;  // (R, N) or null
    const void* grad_last;    // (B, N) or null
    void* grad_x;             // (R, N) or null
    double* grad_angles;      // as the transition, each or null
    double* grad_rates;
    double* grad_dt;
    void* grad_h0;       // (B, N) or null
    void* grad_restart;  // likewise; zero for sequences that restart nowhere
    Run run;
};

struct IrregularTable {
    void (*forward)(const IrregularForward&);
    void (*backward)(const IrregularBackward&);
};

const IrregularTable& irregular_table(Isa isa, i64 element_size);  // as `table` of kernels.hpp

namespace portable {
extern const IrregularTable irregular_float, irregular_double;
}
namespace avx2 {
extern const IrregularTable irregular_float, irregular_double;
}
namespace avx512 {
extern const IrregularTable irregular_float, irregular_double;
}

}  // namespace orthornn
