// A recurrence whose transition is a product of reflections of each row's own; see reflections_call.hpp for what it takes
// and ../docs/derivations/reflections.md for the derivation.
//
// A step costs 2MN multiply-adds forward and 6MN backward. Forward stores the states and the M numbers k_i'x; backward
// repeats the M subtractions of a step from the state before it, so that the vectors between two reflections are never
// stored and are the same to the bit, whatever beta is.
//
// Exactness. A reflection keeps the norm exactly if its factor beta / k'k is: a factor rounded to float is off by up to 6e-8,
// in the same direction whenever the same reflector comes again. So the factor is a double, k'k is summed in double once
// for each row of the tables, and only roundings without a direction are left. Angles come as cosines with what rounding
// lost of them, for the same reason.
#pragma once

#include "chain.hpp"
#include "reflections_call.hpp"

namespace orthornn::ORTHORNN_ISA {

#if defined(__AVX512F__)
ORTHORNN_INLINE float sum_of_lanes(VF v) { return _mm512_reduce_add_ps((__m512)v); }
ORTHORNN_INLINE double sum_of_lanes(VD v) { return _mm512_reduce_add_pd((__m512d)v); }
#elif defined(__AVX2__)
ORTHORNN_INLINE float sum_of_lanes(VF v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
ORTHORNN_INLINE double sum_of_lanes(VD v) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128((__m256d)v), _mm256_extractf128_pd((__m256d)v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}
#else
ORTHORNN_INLINE float sum_of_lanes(VF v) { return (v[0] + v[2]) + (v[1] + v[3]); }
ORTHORNN_INLINE double sum_of_lanes(VD v) { return v[0] + v[1]; }
#endif

// a'b. Nothing beyond n numbers is read: what is not finite there belongs to another head.
template <class T>
ORTHORNN_INLINE T dot(const T* a, const T* b, i64 n) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V even = zero<T>(), odd = zero<T>();
    i64 i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        even = fma(load_loose(a + i), load_loose(b + i), even);
        odd = fma(load_loose(a + i + W), load_loose(b + i + W), odd);
    }
    if (i + W <= n) {
        even = fma(load_loose(a + i), load_loose(b + i), even);
        i += W;
    }
    if (i < n) odd = fma(load_part(a + i, n - i), load_part(b + i, n - i), odd);
    return sum_of_lanes(even + odd);
}

// to = from - alpha k; `to` and `from` may be one. Nothing beyond n numbers is written.
template <class T>
ORTHORNN_INLINE void subtract(T* to, const T* from, const T* k, T alpha, i64 n) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    const V factor = broadcast(alpha);
    i64 i = 0;
    for (; i + W <= n; i += W) store_loose<T>(to + i, fnma(factor, load_loose(k + i), load_loose(from + i)));
    if (i < n) store_part(to + i, fnma(factor, load_part(k + i, n - i), load_part(from + i, n - i)), n - i);
}

// k'k in double.
template <class T>
double squared_length(const T* k, i64 n) {
    double sums[8] = {};
    i64 i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; ++lane) sums[lane] += static_cast<double>(k[i + lane]) * static_cast<double>(k[i + lane]);
    for (; i < n; ++i) sums[i % 8] += static_cast<double>(k[i]) * static_cast<double>(k[i]);
    double total = 0;
    for (const double sum : sums) total += sum;
    return total;
}

// to = c k with the power of two c that brings the largest magnitude of k to [2, 4); NaN where that is infinite. Returns c.
template <class T>
T scale_down(T* to, const T* k, i64 n) {
    T largest = 0;
    for (i64 i = 0; i < n; ++i) largest = maximum(largest, k[i] < 0 ? -k[i] : k[i]);
    int exponent = 0;
    __builtin_frexp(static_cast<double>(largest), &exponent);
    const T infinite = largest - largest, c = static_cast<T>(__builtin_ldexp(1.0, 2 - exponent)) + infinite;
    for (i64 i = 0; i < n; ++i) to[i] = c * k[i];
    return c;
}

// A vector of which only the direction matters: k itself, or where k is long c k in other memory.
template <class T>
struct Scaled {
    const T* k;
    double inverse;  // of its squared length, or of its length
    T c;
};

// What all rows and threads share.
template <class T>
struct ReflectionWork {
    const Rows& rows;
    const ReflectionTables& tables;
    const Chain<T> chain;
    const T *k, *beta, *gate, *turn, *add;
    i64 N, M, heads, size, half, far, stride;  // size: units of a head; far: where the partners start

    ReflectionWork(const Rows& r, const ReflectionTables& t, const Phi& phi, double clip)
        : rows(r), tables(t), chain(r, Transition{}, phi, clip), k(static_cast<const T*>(t.k)),
          beta(static_cast<const T*>(t.beta)), gate(static_cast<const T*>(t.gate)),
          turn(static_cast<const T*>(t.turn)), add(static_cast<const T*>(t.add)), N(r.N), M(t.M), heads(t.heads),
          size(r.N / t.heads), half(r.N / 2), far(r.N - r.N / 2), stride(row_stride<T>(r.N + 2 * width<T>)) {}

    i64 steps_between_polls() const { return maximum<i64>(1, 4000000 / (block_rows * (8 * M + 8) * N + 1)); }
    i64 table_row(i64 row) const { return tables.index ? tables.index[row] : row; }

    // The reflector of one head, from row s of the tables; `at` is its place there. `spare` has room for it.
    ORTHORNN_INLINE Scaled<T> reflector(i64 s, i64 i, i64 j, T* spare) const {
        const T* const own = k + (s * M + i) * N + j * size;
        const double inverse = tables.inverse[(s * M + i) * heads + j];
        if (!(inverse < 0)) return {own, inverse, 1};
        const T c = scale_down(spare, own, size);
        return {spare, -inverse, c};
    }

    // y = R x (or R'x), `y` of whole vectors; y may be x. (c, s) with their low parts; see rotations.hpp.
    template <bool transposed>
    void rotate(i64 s, const T* x, T* y) const {
        const T* const c = turn + (tables.turns > 1 ? s : 0) * 4 * half;
        const i64 far_ = far;
        i64 i = 0;
        for (; i + width<T> <= half; i += width<T>) turn_vector<transposed, false>(c, x, y, i, far_, width<T>);
        if (i < half) turn_vector<transposed, true>(c, x, y, i, far_, half - i);
        if (y != x && far > half) y[half] = x[half];
    }

private:
    template <bool transposed, bool part>
    ORTHORNN_INLINE void turn_vector(const T* c, const T* x, T* y, i64 i, i64 partner, i64 count) const {
        using V = Vector<T>;
        const V cosine = read<part>(c + i, count), cosine_low = read<part>(c + half + i, count);
        V sine = read<part>(c + 2 * half + i, count), sine_low = read<part>(c + 3 * half + i, count);
        if constexpr (transposed) {
            sine = -sine;
            sine_low = -sine_low;
        }
        const V a = read<part>(x + i, count), b = read<part>(x + partner + i, count);
        write<part, T>(y + i, fma_once(cosine, a, fma_once(-sine, b, fnma(sine_low, b, cosine_low * a))), count);
        write<part, T>(y + partner + i, fma_once(cosine, b, fma_once(sine, a, fma(sine_low, a, cosine_low * b))), count);
    }
};

// 1 / max(k'k, shortest^2) of every reflector; of long ones see ReflectionTables::inverse.
template <class T>
void reflector_lengths(const ReflectionTables& tables, i64 N, const Run& run) {
    const i64 size = N / tables.heads, count = tables.S * tables.M;
    const int parts = static_cast<int>(maximum<i64>(1, minimum<i64>(run.threads, count * N / 100000)));
    const T* const k = static_cast<const T*>(tables.k);
    const Buffer<T> spare(parts * size);
    run_parts(parts, run.threads, [&](int part) {
        for (i64 r = count * part / parts; r < count * (part + 1) / parts; ++r)
            for (i64 j = 0; j < tables.heads; ++j) {
                const T* const own = k + r * N + j * size;
                const double total = squared_length(own, size);
                constexpr double least = shortest_reflector * shortest_reflector;
                constexpr double most = longest_reflector * longest_reflector;
                double inverse = total > least ? 1 / total : total == total ? 1 / least : total;
                if (total > most) {
                    T* const scaled = spare + part * size;
                    scale_down(scaled, own, size);
                    inverse = -1 / squared_length(scaled, size);
                }
                tables.inverse[r * tables.heads + j] = inverse;
            }
    });
}

template <class T>
struct ReflectionForwardWork : ReflectionWork<T> {
    using Base = ReflectionWork<T>;
    using Base::add, Base::beta, Base::chain, Base::gate, Base::half, Base::heads, Base::M, Base::N, Base::rows,
        Base::size, Base::stride, Base::table_row, Base::tables, Base::turn;
    const ReflectionForward& call;

    struct Part {
        Buffer<T> y, slots, state, saved, dots, spare;
    };

    explicit ReflectionForwardWork(const ReflectionForward& c) : Base(c.rows, c.tables, c.phi, 0), call(c) {}

    void step(i64 row, T* y, T* dots, T* spare) const {
        const i64 s = table_row(row);
        if (turn) Base::template rotate<false>(s, y, y);
        for (i64 i = 0; i < M; ++i)
            for (i64 j = 0; j < heads; ++j) {
                const i64 at = i * heads + j;
                const Scaled<T> own = Base::reflector(s, i, j, spare);
                const T p = dot(own.k, y + j * size, size);
                const double factor = static_cast<double>(beta[s * M * heads + at]) * own.inverse;
                subtract(y + j * size, y + j * size, own.k, static_cast<T>(factor * static_cast<double>(p)), size);
                dots[at] = p;
            }
        if (!gate) return;
        const T* const g = gate + s * tables.gates;
        if (tables.gates == N)
            for (i64 n = 0; n < N; ++n) y[n] *= g[n];
        else
            for (i64 j = 0; j < heads; ++j)
                for (i64 n = 0; n < size; ++n) y[j * size + n] *= g[j];
    }

    void run(Range range, Part& own) const {
        const Layout& l = chain.layout;
        for (i64 b = range.begin; b < range.end; ++b) {
            T* const y = own.y + (b - range.begin) * stride;
            clear(y, stride);
            if (call.h0) copy(y, static_cast<const T*>(call.h0) + b * N, N);
        }
        T* const states = static_cast<T*>(call.states);
        T* const saved = static_cast<T*>(call.saved);
        T* const all_dots = static_cast<T*>(call.dots);
        const i64 between = this->steps_between_polls();
        i64 first = 0, countdown = between;
        for (i64 t = 0; t < rows.T; ++t) {
            const i64 all = running(rows, t), active = minimum(all, range.end) - range.begin;
            if (active <= 0) break;
            for (i64 i = 0; i < active; ++i) {
                const i64 row = first + range.begin + i;
                T* const y = own.y + i * stride;
                if (restarts(rows, row)) {
                    const T* const restart = static_cast<const T*>(call.restart);
                    copy(y, restart ? restart + (range.begin + i) * N : chain.zeros.data, N);
                }
                step(row, y, all_dots ? all_dots + row * M * heads : own.dots.data, own.spare.data);
                const T* const a = add ? add + table_row(row) * N : chain.zeros.data;
                T* const state = states ? states + row * N : own.state.data;
                T* const z = saved ? saved + row * N : own.saved.data;
                if (chain.functions.pairs) {
                    to_slots(l, y, own.slots.data);
                    chain.functions.forward(chain.shared, {own.slots.data, a, a + l.first, state, z, own.slots.data}, 0,
                                            l.offset);
                    copy(y, state, N);
                } else {
                    chain.functions.forward(chain.shared, {y, a, a, state, z, y}, 0, l.offset);
                }
            }
            if (call.last) {
                const i64 next = t + 1 < rows.T ? running(rows, t + 1) : 0;
                for (i64 i = maximum<i64>(next - range.begin, 0); i < active; ++i)
                    copy(static_cast<T*>(call.last) + (range.begin + i) * N, own.y + i * stride, N);
            }
            first += all;
            if (--countdown == 0) {
                countdown = between;
                if (should_stop(call.run.interrupt)) return;
            }
        }
    }
};

template <class T>
void reflections_forward(const ReflectionForward& call) {
    const FlushDenormals flush;
    reflector_lengths<T>(call.tables, call.rows.N, call.run);
    const ReflectionForwardWork<T> work(call);
    using Part = typename ReflectionForwardWork<T>::Part;
    const Plan p = plan(call.rows, call.run.threads, block_rows);
    const i64 N = work.N;
    const Parts<Part> parts(p.parts, [&](int) {
        return new Part{Buffer<T>(p.rows * work.stride), Buffer<T>(work.chain.layout.slots), Buffer<T>(N), Buffer<T>(N),
                        Buffer<T>(work.M * work.heads), Buffer<T>(work.size)};
    });
    over_sequences(call.rows, call.run, p, parts, [&](Part& own, Range range) { work.run(range, own); });
    if (call.rows.T == 0 && call.last) {
        if (call.h0) copy(static_cast<T*>(call.last), static_cast<const T*>(call.h0), call.rows.B * N);
        else clear(static_cast<T*>(call.last), call.rows.B * N);
    }
}

// The gradient of one row of the tables: where each part lies in a record.
struct ReflectionRecord {
    i64 k, beta, gate, angle, add, size;
    ReflectionRecord(const ReflectionTables& t, i64 N) {
        k = 0;
        beta = k + t.M * N;
        gate = beta + t.M * t.heads;
        angle = gate + t.gates;
        add = angle + N / 2;
        size = add + N;
    }
};

// Sums of T that go to double before they lose digits: records, each added up to 64 times.
template <class T>
struct RecordSums {
    i64 size;
    Buffer<T> narrow;
    Buffer<double> wide;
    Buffer<std::int32_t> waiting;

    RecordSums(i64 records, i64 record_size)
        : size(record_size), narrow(records * record_size), wide(records * record_size), waiting(records) {}
    void add(i64 record, const T* from) {
        T* const to = narrow + record * size;
        for (i64 i = 0; i < size; ++i) to[i] += from[i];
        if (++waiting[record] == passes_in_single_sum) flush(record);
    }
    void flush(i64 record) {
        for (i64 i = record * size; i < (record + 1) * size; ++i) wide[i] += static_cast<double>(narrow[i]);
        clear(narrow + record * size, size);
        waiting[record] = 0;
    }
};

template <class T>
struct ReflectionBackwardWork : ReflectionWork<T> {
    using Base = ReflectionWork<T>;
    using Base::add, Base::beta, Base::chain, Base::far, Base::gate, Base::half, Base::heads, Base::M, Base::N, Base::rows,
        Base::size, Base::stride, Base::table_row, Base::tables, Base::turn;
    const ReflectionBackward& call;
    const ReflectionRecord record;
    Buffer<std::int32_t> places;  // table row -> record of the sums, from 1
    i64 used = 0;

    struct Part {
        Buffer<T> carried, x, g, slots, slots_out, grad, record, spare;
        Buffer<T> parameter;         // slots, added to by the passes
        RecordSums<T> sums;          // of the rows of the tables that occur
        RecordSums<T> shared;        // the angles that all steps share
        Buffer<double> parameter_sums;
        i64 waiting = 0;
    };

    explicit ReflectionBackwardWork(const ReflectionBackward& c)
        : Base(c.rows, c.tables, c.phi, c.clip), call(c), record(c.tables, c.rows.N) {
        if (!tables.index) return;
        places.reset(tables.S);
        for (i64 r = 0; r < rows.R; ++r)
            if (!places[tables.index[r]]) places[tables.index[r]] = static_cast<std::int32_t>(++used);
    }
    bool shared_angles() const { return turn && tables.turns == 1 && tables.S != 1; }

    // Where the gradients of one step go.
    struct Targets {
        T *k, *beta, *gate, *angle, *add;
    };

    Targets targets(i64 row, T* own) const {
        Targets to{own + record.k, own + record.beta, own + record.gate, own + record.angle, own + record.add};
        if (tables.index) return to;
        if (call.grad_k) to.k = static_cast<T*>(call.grad_k) + row * M * N;
        if (call.grad_beta) to.beta = static_cast<T*>(call.grad_beta) + row * M * heads;
        if (call.grad_gate) to.gate = static_cast<T*>(call.grad_gate) + row * tables.gates;
        if (call.grad_angle && tables.turns == tables.S) to.angle = static_cast<T*>(call.grad_angle) + row * half;
        if (call.grad_add) to.add = static_cast<T*>(call.grad_add) + row * N;
        return to;
    }

    // g = dL/d(what the step before returned), from g = dL/d(g_t o ...) and that state; all but dL/da is written.
    void step(i64 row, const T* before, const T* dots, T* x, T* g, T* spare, const Targets& to) const {
        using V = Vector<T>;
        constexpr int W = width<T>;
        const i64 s = table_row(row);
        const T* const own_beta = beta + s * M * heads;
        if (turn) Base::template rotate<false>(s, before, x);
        else copy(x, before, N);
        for (i64 i = 0; i < M; ++i) {
            T* const next = x + stride;
            for (i64 j = 0; j < heads; ++j) {
                const i64 at = i * heads + j;
                const Scaled<T> own = Base::reflector(s, i, j, spare);
                const double factor = static_cast<double>(own_beta[at]) * own.inverse;
                const T alpha = static_cast<T>(factor * static_cast<double>(dots[at]));
                subtract(next + j * size, x + j * size, own.k, alpha, size);
            }
            x = next;
        }
        if (gate) {
            const T* const gates = gate + s * tables.gates;
            if (tables.gates == N) {
                for (i64 n = 0; n < N; ++n) {
                    to.gate[n] = g[n] * x[n];
                    g[n] *= gates[n];
                }
            } else {
                for (i64 j = 0; j < heads; ++j) {
                    T sum = 0;
                    for (i64 n = j * size; n < (j + 1) * size; ++n) {
                        sum += g[n] * x[n];
                        g[n] *= gates[j];
                    }
                    to.gate[j] = sum;
                }
            }
        }
        for (i64 i = M - 1; i >= 0; --i) {
            x -= stride;
            for (i64 j = 0; j < heads; ++j) {
                const i64 at = i * heads + j, begin = j * size;
                const Scaled<T> scaled = Base::reflector(s, i, j, spare);
                const T* const own = scaled.k;
                const double inverse = scaled.inverse;
                const T* const xs = x + begin;
                T* const gs = g + begin;
                T* const by_k = to.k + i * N + begin;
                const double p = static_cast<double>(dots[at]), q = static_cast<double>(dot(own, gs, size));
                const double factor = static_cast<double>(own_beta[at]) * inverse;
                constexpr double least = shortest_reflector * shortest_reflector;
                const bool is_short = inverse >= 1 / least;
                to.beta[at] = static_cast<T>(-p * q * inverse);
                const V by_x = broadcast(static_cast<T>(-factor * q)), by_g = broadcast(static_cast<T>(-factor * p)),
                        by_own = broadcast(static_cast<T>(is_short ? 0 : 2 * factor * p * q * inverse));
                i64 n = 0;
                for (; n + W <= size; n += W) {
                    const V kn = load_loose(own + n), gn = load_loose(gs + n);
                    store_loose<T>(by_k + n, fma(by_own, kn, fma(by_g, gn, by_x * load_loose(xs + n))));
                    store_loose<T>(gs + n, fma(by_x, kn, gn));
                }
                if (n < size) {
                    const V kn = load_part(own + n, size - n), gn = load_loose(gs + n);
                    store_part(by_k + n, fma(by_own, kn, fma(by_g, gn, by_x * load_loose(xs + n))), size - n);
                    store_part(gs + n, fma(by_x, kn, gn), size - n);
                }
                if (scaled.c != 1)
                    for (n = 0; n < size; ++n) by_k[n] *= scaled.c;
            }
        }
        if (!turn) return;
        for (i64 n = 0; n < half; ++n) to.angle[n] = g[far + n] * x[n] - g[n] * x[far + n];
        Base::template rotate<true>(s, g, g);
    }

    void run(Range range, Part& own) const {
        const Layout& l = chain.layout;
        const T* const grad_states = static_cast<const T*>(call.grad_states);
        const T* const grad_last = static_cast<const T*>(call.grad_last);
        const T* const states = static_cast<const T*>(call.states);
        const T* const saved = static_cast<const T*>(call.saved);
        const T* const dots = static_cast<const T*>(call.dots);
        const T *const h0 = static_cast<const T*>(call.h0), *const restart = static_cast<const T*>(call.restart);
        T* const grad_restart = static_cast<T*>(call.grad_restart);
        if (grad_restart) clear(grad_restart + range.begin * N, (range.end - range.begin) * N);
        clear(own.carried.data, (range.end - range.begin) * stride);
        const i64 steps = range.begin < range.end ? length(rows, range.begin) : 0, between = this->steps_between_polls();
        i64 first = 0, countdown = between, ended = 0;  // ended: sequences that the step after this one still has
        for (i64 t = 0; t + 1 < steps; ++t) first += running(rows, t);
        for (i64 t = steps - 1; t >= 0; --t) {
            const i64 active = minimum(running(rows, t), range.end) - range.begin;
            const i64 previous = t > 0 ? first - running(rows, t - 1) : 0;
            for (i64 i = 0; i < active; ++i) {
                const i64 row = first + range.begin + i;
                T* const carried = own.carried + i * stride;
                const T* grad = grad_states ? grad_states + row * N : chain.zeros.data;
                if (i >= ended && grad_last) {
                    const T* const last = grad_last + (range.begin + i) * N;
                    for (i64 n = 0; n < N; ++n) own.grad[n] = grad[n] + last[n];
                    grad = own.grad.data;
                }
                const Targets to = targets(row, own.record.data);
                T* g = own.g.data;
                if (chain.functions.pairs) {
                    to_slots(l, carried, own.slots.data);
                    chain.functions.backward(chain.shared, {own.slots.data, grad, saved + row * N, to.add,
                                                            own.slots_out.data, own.parameter.data}, 0, l.offset);
                    copy(g, to.add, N);
                } else {
                    chain.functions.backward(chain.shared, {carried, grad, saved + row * N, to.add, g, own.parameter.data},
                                             0, l.offset);
                }
                const i64 b = range.begin + i;
                const bool fresh = restarts(rows, row);
                const T* const first = fresh ? restart : h0;
                const T* const before = !fresh && t > 0 ? states + (previous + b) * N
                                        : first         ? first + b * N
                                                        : chain.zeros.data;
                step(row, before, dots + row * M * heads, own.x.data, g, own.spare.data, to);
                if (fresh) {
                    for (i64 n = 0; grad_restart && n < N; ++n) grad_restart[b * N + n] += g[n];
                    clear(carried, N);
                } else {
                    copy(carried, g, N);
                }
                if (tables.index) own.sums.add(places[tables.index[row]] - 1, own.record.data);
                if (shared_angles()) own.shared.add(0, to.angle);
                if (++own.waiting == passes_in_single_sum) flush(own);
            }
            ended = active;
            first = previous;
            if (--countdown == 0) {
                countdown = between;
                if (should_stop(call.run.interrupt)) return;
            }
        }
        if (call.grad_h0)
            for (i64 b = range.begin; b < range.end; ++b)
                copy(static_cast<T*>(call.grad_h0) + b * N, own.carried + (b - range.begin) * stride, N);
    }

    void flush(Part& own) const {
        own.waiting = 0;
        if (!chain.functions.trained) return;
        for (i64 i = 0; i < chain.layout.slots; ++i) own.parameter_sums[i] += static_cast<double>(own.parameter[i]);
        clear(own.parameter.data, chain.layout.slots);
    }

    void write(const Parts<Part>& parts) const {
        Buffer<double> total(maximum(maximum(record.size, chain.layout.slots), half));
        const auto collect = [&](i64 count, const auto& of) {
            clear(total.data, count);
            for (int part = 0; part < parts.count; ++part) {
                const double* const from = of(*parts.at[part]);
                for (i64 i = 0; i < count; ++i) total[i] += from[i];
            }
        };
        const auto give = [&](void* to, i64 row, i64 count, i64 from) {
            for (i64 i = 0; to && i < count; ++i) static_cast<T*>(to)[row * count + i] = static_cast<T>(total[from + i]);
        };
        for (int part = 0; part < parts.count; ++part) {
            for (i64 i = 0; i < used; ++i) parts.at[part]->sums.flush(i);
            parts.at[part]->shared.flush(0);
            flush(*parts.at[part]);
        }
        for (i64 s = 0; tables.index && s < tables.S; ++s) {
            const i64 place = places[s];
            if (place) collect(record.size, [&](Part& own) { return own.sums.wide + (place - 1) * record.size; });
            else clear(total.data, record.size);
            give(call.grad_k, s, M * N, record.k);
            give(call.grad_beta, s, M * heads, record.beta);
            give(call.grad_gate, s, tables.gates, record.gate);
            if (!shared_angles()) give(call.grad_angle, s, half, record.angle);
            give(call.grad_add, s, N, record.add);
        }
        if (shared_angles()) {
            collect(half, [](Part& own) { return own.shared.wide.data; });
            give(call.grad_angle, 0, half, 0);
        }
        if (!chain.functions.trained || !call.grad_parameter) return;
        collect(chain.layout.slots, [](Part& own) { return own.parameter_sums.data; });
        Buffer<T> narrow(chain.layout.slots);
        for (i64 i = 0; i < chain.layout.slots; ++i) narrow[i] = static_cast<T>(total[i]);
        if (chain.functions.pairs) copy(static_cast<T*>(call.grad_parameter), narrow.data, half);
        else from_slots(chain.layout, narrow.data, static_cast<T*>(call.grad_parameter));
    }
};

template <class T>
void reflections_backward(const ReflectionBackward& call) {
    const FlushDenormals flush;
    const ReflectionBackwardWork<T> work(call);
    using Part = typename ReflectionBackwardWork<T>::Part;
    const Plan p = plan(call.rows, call.run.threads, block_rows);
    const i64 N = work.N, slots = work.chain.layout.slots, record = work.record.size;
    const Parts<Part> parts(p.parts, [&](int) {
        return new Part{Buffer<T>(p.rows * work.stride), Buffer<T>((work.M + 1) * work.stride), Buffer<T>(work.stride),
                        Buffer<T>(slots), Buffer<T>(slots), Buffer<T>(N), Buffer<T>(record), Buffer<T>(work.size),
                        Buffer<T>(slots),
                        RecordSums<T>(work.used, record), RecordSums<T>(1, work.half), Buffer<double>(slots)};
    });
    over_sequences(call.rows, call.run, p, parts, [&](Part& own, Range range) { work.run(range, own); });
    if (should_stop(call.run.interrupt)) return;
    work.write(parts);
    if (call.rows.T == 0 && call.grad_h0 && call.grad_last)
        copy(static_cast<T*>(call.grad_h0), static_cast<const T*>(call.grad_last), call.rows.B * N);
}

}  // namespace orthornn::ORTHORNN_ISA
