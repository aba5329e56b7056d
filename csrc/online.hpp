// Real-time recurrent learning of a linear recurrence that runs as rotations: forward traces of every parameter's effect on
// the state, so that the gradient of each step's loss through the whole past is there at once, with nothing stored.
//
//     z_t = A z_{t-1} + V x_t + b,   A_k = g Rot(angle_k) R_k   (a 2x2 block for each pair k of units)
//     y_t = Y z_t + d,   loss (1/2) |y_t - target_t|^2
//
// A parameter of pair k moves nothing but the two units of pair k, so a trace is two numbers (angle, gain) or four (a column of
// V, b, z_0): H (8 + 4 (I + 1)) numbers in all for H pairs, and the same order of multiply-adds per step.
#pragma once

#include "kernels.hpp"

namespace orthornn {

// All arrays are of double. Units are stored in two rows of H: the first and the second of every pair; where N is odd, the
// last pair's second is a zero that stays.
struct Online {
    i64 T, H, I, K;
    double* parameters;  // angles (H,), g, V (I, 2, H), b (2, H), z_0 (2, H), Y (K, 2, H), d (K,)
    double* gradient;    // likewise: summed since the last update
    double* moments;     // likewise, twice: of the gradient and of its square; null for plain gradient descent
    const double* rates;   // likewise: learning rates; null for no updates
    const double* blocks;  // R_k: (2, 2, H), rows first
    const double* turns;   // (H,): 1 where the pair turns, 0 for a unit alone
    double* turned;        // (2, 2, H): Rot(angle_k) R_k of the parameters as they are
    double* state;         // z (2, H), traces of the angles (2, H) and of g (2, H), of z_0, b and V's columns (2 + I, 2, 2, H)
    i64* counts;           // steps since the last update, updates
    const double* x;       // (T, I)
    const double* target;  // (T, K), or null: then only the state and its traces go on
    double* out;           // (T, K): predictions, made before the step's update
    const double* grad_out;  // (K,) with T = 0: dL/dy of the step made last, in place of a target; else null
    i64 every;             // steps between updates
    double first_decay, second_decay, epsilon;  // of Adam
    Run run;               // the caller's thread alone; when interrupted, what was done so far stays
};

void online(const Online& call);

}  // namespace orthornn
