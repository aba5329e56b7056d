// What both directions of the recurrence share: phi and the base in slots, and how sequences are given to threads.
//
// A range of sequences runs to its end without waiting for the others; operand and product rows stay in its thread's
// cache, and nothing is allocated between the steps.
#pragma once

#include "passes.hpp"
#include "tile.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr i64 block_rows = 4 * rows_at_once;
constexpr i64 passes_in_single_sum = 64;  // after a step that reaches so many rows, their parameter gradients go to float64

// Everything the threads share.
template <class T>
struct Chain {
    Layout layout;
    PassFunctions<T> functions;
    PassShared<T> shared;
    bool base;
    Buffer<T> parameter, c, s, zeros;
    i64 steps_between_polls;

    Chain(const Rows& rows, const Transition& w, const Phi& phi, double clip) {
        base = w.c != nullptr;
        layout = ORTHORNN_ISA::layout<T>(rows.N, base || w.rotations || phi.kind().pairs);
        functions = pass_functions<T>(phi.code, layout.paired, base);
        parameter.reset(layout.slots);
        zeros.reset(maximum(layout.slots, rows.N));
        if (functions.trained) {
            const T* p = static_cast<const T*>(phi.parameter);
            if (functions.pairs) copy(parameter.data, p, rows.N / 2);
            else to_slots(layout, p, parameter.data);
        }
        if (base) {
            c.reset(layout.slots);
            s.reset(layout.slots);
            to_slots(layout, static_cast<const T*>(w.c), c.data);
            to_slots(layout, static_cast<const T*>(w.s), s.data);
            if (rows.N % 2) {  // the middle unit is its own partner
                const i64 middle = rows.N / 2;
                c[middle] += s[middle];
                s[middle] = 0;
            }
        }
        shared = {layout, parameter.data, c.data, s.data, static_cast<T>(phi.slope), static_cast<T>(clip)};
        const i64 work = block_rows * (w.W ? rows.N * rows.N : 2 * rows.N * w.M + w.M * w.M) + block_rows * rows.N * 8;
        steps_between_polls = maximum<i64>(1, 4000000 / work);
    }
    // operand = B h of one row in slots, in place.
    void apply_base(T* h) const {
        if (!base) return;
        const i64 offset = layout.offset;
        for (i64 i = 0; i < offset; i += width<T>) {  // as a pass does it, to the bit: a sequence may go on from any state
            const Vector<T> a = load(h + i), b = load(h + offset + i);
            store<T>(h + i, fma(load(c + i), a, load(s + i) * b));
            store<T>(h + offset + i, fma(load(c + offset + i), b, load(s + offset + i) * a));
        }
    }
    void apply_base_transpose(T* e) const {
        if (!base) return;
        for (i64 i = 0; i < layout.offset; ++i) {
            const T a = e[i], b = e[layout.offset + i];
            e[i] = c[i] * a + s[layout.offset + i] * b;
            e[layout.offset + i] = c[layout.offset + i] * b + s[i] * a;
        }
    }
};

// How many parts the sequences are given to threads in, and the rows of the largest block.
struct Plan {
    int parts;
    i64 rows;
};

inline Plan plan(const Rows& rows, int threads, i64 at_once) {
    Plan p{static_cast<int>(maximum<i64>(1, minimum<i64>(threads, rows.B))), 1};
    for (int part = 0; part < p.parts; ++part) {
        const Range r = share(rows, part, p.parts);
        const i64 count = r.end - r.begin;
        if (count > 0) p.rows = maximum(p.rows, (count + (count + at_once - 1) / at_once - 1) /
                                                    ((count + at_once - 1) / at_once));
    }
    return p;
}

// What each part works in, made before the threads start.
template <class Part>
struct Parts {
    Buffer<Part*> at;
    int count = 0;
    template <class Make>
    Parts(int n, const Make& make) : Parts(n) {  // from here on the destructor runs, also where memory runs out
        for (; count < n; ++count) at[count] = make(count);
    }
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;
    ~Parts() {
        for (int i = 0; i < count; ++i) delete at[i];
    }

private:
    explicit Parts(int n) : at(n) {}
};

// body(part, range) for every block of sequences, each on the thread of its part.
template <class Part, class Body>
void over_sequences(const Rows& rows, const Run& run, const Plan& plan, const Parts<Part>& parts, const Body& body) {
    run_parts(plan.parts, run.threads, [&](int index) {
        const Range all = share(rows, index, plan.parts);
        const Split blocks(all.end - all.begin, plan.rows);
        for (i64 b = 0; b < blocks.parts; ++b) {
            if (b && should_stop(run.interrupt)) return;  // many short sequences end before they ask
            body(*parts.at[index], Range{all.begin + blocks.begin(b), all.begin + blocks.begin(b + 1)});
        }
    });
}

// Up to how many sequences a row at a time is faster than a block of rows. A rule of B, not of the rows of a thread: the
// two ways add in different orders.
constexpr i64 single_rows = 4;

}  // namespace orthornn::ORTHORNN_ISA
