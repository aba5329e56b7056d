// What the native kernels take and the table through which they are reached; no code, so that every file may include it.
//
// Rows are flat and time-major: the rows of step t are the sequences that still run, longest first. `steps` of size T
// holds how many run at each step (non-increasing), or is null where all B run to the end. R is the sum of the steps.
// All matrices are row-major and dense. T time, B batch, I input, N hidden, M reflections, R rows.
#pragma once

#include <cstdint>

namespace orthornn {

using i64 = std::int64_t;

struct Rows {
    i64 T, B, N, R;
    const i64* steps;    // (T,) or null
    const i64* lengths;  // (B,) how many steps each sequence has, or null with steps
    const unsigned char* resets = nullptr;  // (R,) 1 where `restart` takes the place of the state before, or null
};

// A callback on the calling thread that asks whether to go on, and the flag that stops the others.
struct Interrupt {
    bool (*poll)(void*);
    void* data;
    int stop;
};

struct Run {
    int threads;
    Interrupt* interrupt;
};

enum class InputKind : int { projected = 0, raw = 1, tokens = 2 };

// projected: rows (R, N). raw: rows (R, I), weight (N, I), bias (N,). tokens: rows int64 (R,), weight (N, I), bias (N,).
struct Input {
    InputKind kind;
    const void* rows;
    const void* weight;
    const void* bias;  // may be null
    i64 size;          // I
};

// What is asked of an activation before it runs; activations.hpp says what the three mean.
struct PhiKind {
    bool pairs, keeps_z, trained;
};

// By the codes of activations.py. passes.hpp compares this table with the kernels.
inline constexpr PhiKind phi_kinds[] = {
    {false, false, false},  // identity
    {false, false, false},  // tanh
    {false, false, true},   // scaled_tanh
    {false, false, false},  // relu
    {false, false, false},  // leaky_relu
    {false, true, true},    // prelu
    {false, false, true},   // modrelu
    {true, true, true},     // complex_modrelu
    {true, true, false},    // oplu
};
constexpr int phi_count = sizeof phi_kinds / sizeof *phi_kinds;

struct Phi {
    int code;
    double slope;
    const void* parameter;  // of kinds that are trained: (N,), or (N / 2,) for pairs; else null

    const PhiKind& kind() const { return phi_kinds[code]; }
};

// W = (I - U S U') B; c and s are the base's two vectors (N,), or both null. Or, with all of these null, the block-diagonal
// matrix h -> c * h + s * (h with its halves exchanged) of `rotations`.
struct Transition {
    const void* W;  // (N, N), or null for the compact form
    const void* U;  // (N, M)
    const void* S;  // (M, M)
    const void* c;
    const void* s;
    i64 M;
    const double* rotations;  // c (N,), then s (N,), or null
};

struct Forward {
    Rows rows;
    Transition transition;
    Phi phi;
    Input input;
    const void* h0;  // (B, N) or null for zero
    const void* restart;  // (B, N), where there are resets, or null for zero
    void* states;    // (R, N) or null
    void* saved;     // (R, N) for kinds that keep z, or null
    void* last;      // (B, N) or null
    void* h_tilde;   // (R, M) in the compact form, or null
    Run run;
};

struct Backward {
    Rows rows;
    Transition transition;
    Phi phi;
    double clip;
    const void* saved;        // (R, N): states, or z for kinds that keep it
    const void* states;       // (R, N), or null: then phi(saved)
    const void* h0;           // (B, N) or null for zero
    const void* restart;      // (B, N), where there are resets, or null for zero
    const void* grad_states;  // (R, N) or null
    const void* grad_last;    // (B, N) or null
    void* delta;              // (R, N) or null
    void* grad_h0;            // (B, N) or null
    void* grad_restart;       // (B, N) or null
    void* grad_parameter;     // as phi.parameter, or null
    void* grad_c;             // (N,) both, or null
    void* grad_s;
    void* grad_W;             // (N, N) or null
    const void* packed;       // the reflectors as `Factors` takes them, where grad_reflectors is wanted
    const void* free;
    const void* h_tilde;      // (R, M), likewise
    void* grad_reflectors;    // as packed or free, or null
    Input input;              // kind, rows and size, where these two are wanted:
    void* grad_weight_ih;     // (N, I) or null
    void* grad_bias;          // (N,) or null
    Run run;
};

struct Factors {
    i64 N, M;
    const void* packed;  // (NM - M(M-1)/2,), or null
    const void* free;    // (N, M), taken as it is, or null
    void* U;             // (N, M)
    void* S;             // (M, M)
    Run run;
};

struct Table {
    void (*forward)(const Forward&);
    void (*backward)(const Backward&);
    void (*factors)(const Factors&);
};

enum class Isa : int { portable = 0, avx2 = 1, avx512 = 2 };

const char* name(Isa isa);
bool built(Isa isa);
bool supported(Isa isa);
Isa chosen();  // ORTHORNN_ISA, else the best; throws std::runtime_error with a reason
const Table& table(Isa isa, i64 element_size);  // of a built instruction set, for numbers of 4 or 8 bytes

namespace portable {
extern const Table table_float, table_double;
}
namespace avx2 {
extern const Table table_float, table_double;
}
namespace avx512 {
extern const Table table_float, table_double;
}

}  // namespace orthornn
