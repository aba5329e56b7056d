// The delta rule: a matrix state that each step multiplies by I - beta k k' and to which it adds beta k v'; see
// delta_call.hpp for what it takes and ../docs/derivations/delta_rule.md for the derivation.
//
// One sequence and head at a time, in columns of up to four vectors, which stay in the first cache level: each update reads
// them twice and writes them once. Forward stores the state before every chunk of steps. Backward takes the
// chunks from the last one on: it repeats a chunk's updates from the stored state, keeps the state after each, and then goes
// through the chunk in reverse order with G = dL/dS.
//
// Exactness. The factors beta / k'k and beta / |k| are doubles, and only their products with numbers that have no direction
// are rounded; see reflections.hpp.
#pragma once

#include "chain.hpp"
#include "delta_call.hpp"
#include "reflections.hpp"
#include "tile.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr int delta_block = 4;  // vectors of a block of columns

// A block of columns of a state: `at` is its first number, rows are `stride` apart. In the kernels' own memory the blocks
// of a state are one after another, each contiguous: rows of one block that were a whole state apart would share cache sets.
template <class T>
struct Columns {
    T* at;
    i64 stride;
    T* row(i64 i) const { return at + i * stride; }
};

// Factors of the rows of a state: null for 1, else `gates` (1 or keys) numbers.
template <class T>
struct Gate {
    const T* factors;
    i64 gates;
    T of(i64 i) const { return factors[gates == 1 ? 0 : i]; }
};

// to = g o from (where there is a gate), p = to'k.
template <class T, int count>
void delta_read(Columns<T> from, Columns<T> to, Gate<T> gate, const T* k, i64 keys, T* p) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V sums[2][count];
    for (int v = 0; v < count; ++v) sums[0][v] = sums[1][v] = zero<T>();
    const auto add = [&](i64 i, V (&sum)[count]) {
        const V factor = broadcast(k[i]);
        for (int v = 0; v < count; ++v) {
            V x = load<T>(from.row(i) + v * W);
            if (gate.factors) {
                x = x * broadcast(gate.of(i));
                store<T>(to.row(i) + v * W, x);
            }
            sum[v] = fma(factor, x, sum[v]);
        }
    };
    i64 i = 0;
    for (; i + 2 <= keys; i += 2) {
        add(i, sums[0]);
        add(i + 1, sums[1]);
    }
    if (i < keys) add(i, sums[0]);
    for (int v = 0; v < count; ++v) store<T>(p + v * W, sums[0][v] + sums[1][v]);
}

// to = from - k alpha', and o = to'q where q is not null.
template <class T, int count>
void delta_write(Columns<T> from, Columns<T> to, const T* k, const T* alpha, const T* q, i64 keys, T* o) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V a[count], sums[count];
    for (int v = 0; v < count; ++v) {
        a[v] = load<T>(alpha + v * W);
        sums[v] = zero<T>();
    }
    for (i64 i = 0; i < keys; ++i) {
        const V factor = broadcast(k[i]), wanted = broadcast(q ? q[i] : T(0));
        for (int v = 0; v < count; ++v) {
            const V x = fnma(factor, a[v], load<T>(from.row(i) + v * W));
            store<T>(to.row(i) + v * W, x);
            if (q) sums[v] = fma(wanted, x, sums[v]);
        }
    }
    if (q)
        for (int v = 0; v < count; ++v) store<T>(o + v * W, sums[v]);
}

// G += q grad_o' where q is not null, w = G'k; by_k -= G alpha, and by_q += after grad_o.
template <class T, int count>
void delta_gather(Columns<T> G, Columns<T> after, const T* k, const T* q, const T* grad_o, const T* alpha, i64 keys, T* w,
                  T* by_k, T* by_q) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V sums[count], a[count], o[count];
    for (int v = 0; v < count; ++v) {
        sums[v] = zero<T>();
        a[v] = load<T>(alpha + v * W);
        o[v] = q ? load<T>(grad_o + v * W) : zero<T>();
    }
    for (i64 i = 0; i < keys; ++i) {
        const V factor = broadcast(k[i]), wanted = broadcast(q ? q[i] : T(0));
        V written = zero<T>(), read = zero<T>();
        for (int v = 0; v < count; ++v) {
            V g = load<T>(G.row(i) + v * W);
            if (q) {
                g = fma(wanted, o[v], g);
                store<T>(G.row(i) + v * W, g);
                read = fma(load<T>(after.row(i) + v * W), o[v], read);
            }
            sums[v] = fma(factor, g, sums[v]);
            written = fma(g, a[v], written);
        }
        by_k[i] -= sum_of_lanes(written);
        if (q) by_q[i] += sum_of_lanes(read);
    }
    for (int v = 0; v < count; ++v) store<T>(w + v * W, sums[v]);
}

// by_k -= (g o before) (tau w), G -= k (tau w)'; then where there is a gate by_gate += rows of G . before, G = g o G.
template <class T, int count>
void delta_scatter(Columns<T> G, Columns<T> before, Gate<T> gate, const T* k, const T* tau_w, i64 keys, T* by_k,
                   T* by_gate) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V a[count];
    for (int v = 0; v < count; ++v) a[v] = load<T>(tau_w + v * W);
    for (i64 i = 0; i < keys; ++i) {
        const V factor = broadcast(k[i]);
        const T g_i = gate.factors ? gate.of(i) : T(1);
        V read = zero<T>(), gated = zero<T>();
        for (int v = 0; v < count; ++v) {
            const V x = load<T>(before.row(i) + v * W);
            V g = fnma(factor, a[v], load<T>(G.row(i) + v * W));
            read = fma(x, a[v], read);
            if (gate.factors) {
                gated = fma(g, x, gated);
                g = g * broadcast(g_i);
            }
            store<T>(G.row(i) + v * W, g);
        }
        by_k[i] -= g_i * sum_of_lanes(read);
        if (gate.factors) by_gate[gate.gates == 1 ? 0 : i] += sum_of_lanes(gated);
    }
}

// The four functions above for a block of 1 to 4 vectors.
template <class T>
struct DeltaFunctions {
    void (*read)(Columns<T>, Columns<T>, Gate<T>, const T*, i64, T*);
    void (*write)(Columns<T>, Columns<T>, const T*, const T*, const T*, i64, T*);
    void (*gather)(Columns<T>, Columns<T>, const T*, const T*, const T*, const T*, i64, T*, T*, T*);
    void (*scatter)(Columns<T>, Columns<T>, Gate<T>, const T*, const T*, i64, T*, T*);
};
template <class T>
constexpr DeltaFunctions<T> delta_functions[delta_block] = {
    {delta_read<T, 1>, delta_write<T, 1>, delta_gather<T, 1>, delta_scatter<T, 1>},
    {delta_read<T, 2>, delta_write<T, 2>, delta_gather<T, 2>, delta_scatter<T, 2>},
    {delta_read<T, 3>, delta_write<T, 3>, delta_gather<T, 3>, delta_scatter<T, 3>},
    {delta_read<T, 4>, delta_write<T, 4>, delta_gather<T, 4>, delta_scatter<T, 4>},
};

// What both passes need of the inputs: of one sequence and head, an update being one of the M of a step.
template <class T>
struct DeltaWork {
    const Rows& rows;
    const DeltaInputs& in;
    const i64 M, H, K, D, updates, stride, block;  // stride: of a state's rows; block: columns that are done at once
    Buffer<i64> first;                             // the row of each step's first sequence

    DeltaWork(const Rows& r, const DeltaInputs& i)
        : rows(r),
          in(i),
          M(i.M),
          H(i.heads),
          K(i.keys),
          D(i.values),
          updates(i.chunk * i.M),
          stride(round_up(i.values, width<T>)),
          block(minimum<i64>(stride, delta_block * width<T>)),
          first(r.T + 1) {
        for (i64 t = 0; t < rows.T; ++t) first[t + 1] = first[t] + running(rows, t);
    }

    i64 row(i64 t, i64 b) const { return first[t] + b; }
    const T* q(i64 row, i64 h) const { return static_cast<const T*>(in.q) + (row * H + h) * K; }
    i64 update(i64 row, i64 i, i64 h) const { return (row * M + i) * H + h; }
    const T* k(i64 update) const { return static_cast<const T*>(in.k) + update * K; }
    const T* v(i64 update) const { return static_cast<const T*>(in.v) + update * D; }
    T beta(i64 update) const { return static_cast<const T*>(in.beta)[update]; }
    Gate<T> gate(i64 row, i64 h) const {
        return {in.gate ? static_cast<const T*>(in.gate) + (row * H + h) * in.gates : nullptr, in.gates};
    }
    bool resets(i64 row) const { return rows.resets && rows.resets[row]; }
    i64 state(i64 b, i64 h) const { return (b * H + h) * K * D; }
    i64 mark(i64 t, i64 b, i64 h) const { return (t / in.chunk) * rows.B * H * K * D + state(b, h); }

    // The block of columns of a state that begins at one of them.
    Columns<T> columns(T* state, i64 begin) const { return {state + begin * K, minimum(block, stride - begin)}; }

    // Between a state (keys, values) and its blocks of whole vectors; a null state is zero.
    void unpack(const T* from, T* to) const {
        for (i64 begin = 0; begin < stride; begin += block) {
            const Columns<T> own = columns(to, begin);
            const i64 count = from ? minimum(own.stride, D - begin) : 0;
            for (i64 i = 0; i < K; ++i) {
                if (count) copy(own.row(i), from + i * D + begin, count);
                clear(own.row(i) + count, own.stride - count);
            }
        }
    }
    void pack(const T* from, T* to) const {
        for (i64 begin = 0; begin < stride; begin += block) {
            const i64 wide = minimum(block, stride - begin), count = minimum(wide, D - begin);
            for (i64 i = 0; i < K; ++i) copy(to + i * D + begin, from + begin * K + i * wide, count);
        }
    }
    // Stored states are in blocks, too, where they have room for whole vectors.
    void store_mark(const T* from, T* to) const {
        if (stride == D) copy(to, from, K * D);
        else pack(from, to);
    }
    T* read_mark(const T* from, T* to) const {  // where it is then; it is not written to
        if (stride == D && reinterpret_cast<std::uintptr_t>(from) % vector_bytes == 0) return const_cast<T*>(from);
        if (stride == D) copy(to, from, K * D);
        else unpack(from, to);
        return to;
    }

    // A key with 1 / max(|k|, shortest) in double. `spare` has room for it.
    Scaled<T> key(const T* own, T* spare) const {
        const double total = squared_length(own, K);
        constexpr double least = shortest_key * shortest_key, most = longest_key * longest_key;
        if (total > most) {
            const T c = scale_down(spare, own, K);
            return {spare, 1 / __builtin_sqrt(squared_length(spare, K)), c};
        }
        return {own, total > least ? 1 / __builtin_sqrt(total) : total == total ? 1 / shortest_key : total, 1};
    }

    // alpha = beta (s^2 p - s v) for the columns from `begin`; S - k alpha' is the update.
    void amounts(i64 at, double s, i64 begin, i64 columns, const T* p, T* alpha) const {
        const double beta_s = static_cast<double>(beta(at)) * s, tau = beta_s * s;
        const T* const values = v(at) + begin;
        const i64 count = minimum(columns, D - begin);
        for (i64 j = 0; j < count; ++j)
            alpha[j] = static_cast<T>(tau * static_cast<double>(p[j]) - beta_s * static_cast<double>(values[j]));
        for (i64 j = count; j < columns; ++j) alpha[j] = 0;
    }

    // body(begin, columns, functions) for every block of columns.
    template <class Body>
    void over_blocks(const Body& body) const {
        for (i64 begin = 0; begin < stride; begin += block) {
            const i64 columns = minimum(block, stride - begin);
            body(begin, columns, delta_functions<T>[columns / width<T> - 1]);
        }
    }

    // body(part, b, h, count) for all sequences and heads, up to `most` heads of a sequence together, each in the
    // Part(*this) of the thread that does it.
    template <class Part, class Body>
    void over_heads(const Run& run, i64 most, const Body& body) const {
        const i64 pairs = rows.B * H;
        const Parts<Part> parts(static_cast<int>(maximum<i64>(1, minimum<i64>(run.threads, pairs))),
                                [&](int) { return new Part(*this); });
        run_parts(parts.count, run.threads, [&](int part) {
            const i64 end = pairs * (part + 1) / parts.count;
            for (i64 pair = pairs * part / parts.count, count; pair < end; pair += count) {
                if (should_stop(run.interrupt)) return;
                count = minimum(most, minimum(end - pair, H - pair % H));
                body(*parts.at[part], pair / H, pair % H, count);
            }
        });
    }
};

template <class T>
struct DeltaForwardPart {
    Buffer<T> states;  // of the heads that are done together
    T* S;              // the one that is worked on
    Buffer<T> p, alpha, o, spare;
    Buffer<Scaled<T>> keys;  // of each update of a chunk
    explicit DeltaForwardPart(const DeltaWork<T>& w, i64 heads = 1)
        : states(heads * w.K * w.stride), S(states.data), p(w.block), alpha(w.block), o(w.block), spare(w.updates * w.K), keys(w.updates) {}
};

template <class T>
struct DeltaForwardWork : DeltaWork<T> {
    using Base = DeltaWork<T>;
    using Base::D, Base::H, Base::in, Base::K, Base::M, Base::rows;
    using Part = DeltaForwardPart<T>;
    const DeltaForward& call;

    explicit DeltaForwardWork(const DeltaForward& c) : Base(c.rows, c.in), call(c) {}

    T* out(i64 row, i64 h) const { return static_cast<T*>(call.out) + (row * H + h) * D; }

    void begin_again(Columns<T> S, i64 b, i64 h, i64 column, i64 count) const {
        const T* const restart = static_cast<const T*>(in.restart);
        for (i64 i = 0; i < K; ++i) {
            if (restart) copy(S.row(i), restart + this->state(b, h) + i * D + column, count);
            else clear(S.row(i), count);
        }
    }

    // Steps `from` to `end` of a block of columns, whose updates have these keys; write(t, o) takes what step t reads.
    template <class Write>
    void steps(Part& own, const Scaled<T>* keys, i64 b, i64 h, i64 from, i64 end, i64 column, i64 columns,
               const DeltaFunctions<T>& f, const Write& write) const {
        const Columns<T> S = this->columns(own.S, column);
        const i64 count = minimum(columns, D - column);
        for (i64 t = from; t < end; ++t) {
            const i64 row = this->row(t, b);
            if (this->resets(row)) begin_again(S, b, h, column, count);
            for (i64 i = 0; i < M; ++i) {
                const Scaled<T>& key = keys[(t - from) * M + i];
                f.read(S, S, i ? Gate<T>{nullptr, 1} : this->gate(row, h), key.k, K, own.p.data);
                this->amounts(this->update(row, i, h), key.inverse, column, columns, own.p.data, own.alpha.data);
                f.write(S, S, key.k, own.alpha.data, i + 1 == M ? this->q(row, h) : nullptr, K, own.o.data);
            }
            write(t, own.o.data);
        }
    }

    void find_keys(Part& own, i64 b, i64 h, i64 begin, i64 end) const {
        for (i64 e = 0; e < (end - begin) * M; ++e)
            own.keys[e] = this->key(this->k(this->update(this->row(begin + e / M, b), e % M, h)), own.spare + e * K);
    }

    // A sequence of one step goes from the caller's first state to the last one, which are read and written once, where they
    // are of whole vectors. False where they are not.
    bool single_step(Part& own, i64 b, i64 h) const {
        if (length(rows, b) != 1 || call.marks) return false;
        const i64 row = this->row(0, b), at = this->state(b, h);
        const void* const first = this->resets(row) ? in.restart : in.start;
        const auto places = reinterpret_cast<std::uintptr_t>(first) | reinterpret_cast<std::uintptr_t>(call.last);
        if (!first || D % width<T> || places % vector_bytes) return false;
        find_keys(own, b, h, 0, 1);
        this->over_blocks([&](i64 column, i64 columns, const DeltaFunctions<T>& f) {
            // What is only read is not written to.
            Columns<T> from{const_cast<T*>(static_cast<const T*>(first)) + at + column, D};
            const Columns<T> to{static_cast<T*>(call.last) + at + column, D};
            for (i64 i = 0; i < M; ++i) {
                const Gate<T> gate = i ? Gate<T>{nullptr, 1} : this->gate(row, h);
                f.read(from, to, gate, own.keys[i].k, K, own.p.data);
                this->amounts(this->update(row, i, h), own.keys[i].inverse, column, columns, own.p.data, own.alpha.data);
                f.write(gate.factors ? to : from, to, own.keys[i].k, own.alpha.data, i + 1 == M ? this->q(row, h) : nullptr,
                        K, own.o.data);
                from = to;
            }
            copy(out(row, h) + column, own.o.data, columns);
        });
        return true;
    }

    // body(begin, end) for every chunk of `count` heads of a sequence, from their first states to their last.
    template <class Body>
    void over_chunks(Part& own, i64 b, i64 h, i64 count, const Body& body) const {
        const i64 steps = length(rows, b), size = K * this->stride;
        T* const marks = static_cast<T*>(call.marks);
        const auto each = [&](const auto& visit) {
            for (i64 i = 0; i < count; ++i) visit(own.states + i * size, h + i);
        };
        each([&](T* S, i64 head) { this->unpack(static_cast<const T*>(in.start) + this->state(b, head), S); });
        for (i64 begin = 0; begin < steps; begin += in.chunk) {
            const i64 end = minimum(begin + in.chunk, steps);
            if (marks) each([&](const T* S, i64 head) { this->store_mark(S, marks + this->mark(begin, b, head)); });
            body(begin, end);
            if (should_stop(call.run.interrupt)) return;
        }
        each([&](const T* S, i64 head) { this->pack(S, static_cast<T*>(call.last) + this->state(b, head)); });
    }
};

template <class T>
void delta_forward(const DeltaForward& call) {
    const FlushDenormals flush;
    const DeltaForwardWork<T> w(call);
    using Part = DeltaForwardPart<T>;
    w.template over_heads<Part>(call.run, 1, [&](Part& own, i64 b, i64 h, i64) {
        if (w.single_step(own, b, h)) return;
        w.over_chunks(own, b, h, 1, [&](i64 begin, i64 end) {
            w.find_keys(own, b, h, begin, end);
            w.over_blocks([&](i64 column, i64 columns, const DeltaFunctions<T>& f) {
                w.steps(own, own.keys.data, b, h, begin, end, column, columns, f,
                        [&](i64 t, const T* o) { copy(w.out(w.row(t, b), h) + column, o, minimum(columns, w.D - column)); });
            });
        });
    });
}

template <class T>
struct DeltaBackwardPart {
    Buffer<T> gradients, restarts;  // whole states of the heads that are done together
    T *G, *restart;                 // those that are worked on
    Buffer<T> before;
    T* begin;                      // the state before a chunk: this one, or where it is stored
    Buffer<T> after;               // of a block of columns: the state after each update of a chunk
    Buffer<T> p, alpha;            // likewise, of each update
    Buffer<T> w, grad_o, tau_w;
    Buffer<T> by_k, by_q, by_gate;        // of each update or step of a chunk, summed over blocks
    Buffer<T> spare;
    Buffer<Scaled<T>> keys;      // of each update
    Buffer<double> by_v, by_p;   // likewise: v'w and p'w
    explicit DeltaBackwardPart(const DeltaWork<T>& d, i64 heads = 1)
        : gradients(heads * d.K * d.stride), restarts(d.rows.resets ? heads * d.K * d.stride : 1), G(gradients.data),
          restart(restarts.data), before(d.K * d.stride),
          after(d.updates * d.K * d.block), p(d.updates * d.block), alpha(d.updates * d.block), w(d.block),
          grad_o(d.block), tau_w(d.block), by_k(d.updates * d.K), by_q(d.in.chunk * d.K),
          by_gate(d.in.chunk * maximum<i64>(1, d.in.gates)), spare(d.updates * d.K), keys(d.updates), by_v(d.updates),
          by_p(d.updates) {}
};

template <class T>
struct DeltaBackwardWork : DeltaWork<T> {
    using Base = DeltaWork<T>;
    using Base::block, Base::D, Base::H, Base::in, Base::K, Base::M, Base::rows, Base::stride, Base::updates;
    using Part = DeltaBackwardPart<T>;
    const DeltaBackward& call;

    explicit DeltaBackwardWork(const DeltaBackward& c) : Base(c.rows, c.in), call(c) {}

    // The state before an update of a chunk, without its gate.
    Columns<T> before(Part& own, i64 row, i64 e, i64 column) const {
        if (e % M == 0 && this->resets(row)) return this->columns(own.restart, column);
        if (e == 0) return this->columns(own.begin, column);
        return {own.after + (e - 1) * K * block, block};
    }

    void repeat(Part& own, i64 b, i64 h, i64 begin, i64 end, i64 column, i64 columns, const DeltaFunctions<T>& f) const {
        for (i64 e = 0; e < (end - begin) * M; ++e) {
            const i64 row = this->row(begin + e / M, b), at = this->update(row, e % M, h);
            const Columns<T> to{own.after + e * K * block, block}, from = before(own, row, e, column);
            const Gate<T> gate = e % M ? Gate<T>{nullptr, 1} : this->gate(row, h);
            T *const p = own.p + e * block, *const alpha = own.alpha + e * block;
            const Scaled<T>& key = own.keys[e];
            f.read(from, to, gate, key.k, K, p);
            this->amounts(at, key.inverse, column, columns, p, alpha);
            f.write(gate.factors ? to : from, to, key.k, alpha, nullptr, K, nullptr);
        }
    }

    void reverse(Part& own, i64 b, i64 h, i64 begin, i64 end, i64 column, i64 columns, const DeltaFunctions<T>& f) const {
        const Columns<T> G = this->columns(own.G, column);
        const i64 count = minimum(columns, D - column);
        for (i64 e = (end - begin) * M - 1; e >= 0; --e) {
            const i64 t = begin + e / M, row = this->row(t, b), at = this->update(row, e % M, h);
            const bool is_last = e % M == M - 1;
            if (is_last) {
                clear(own.grad_o.data, block);
                if (call.grad_out) copy(own.grad_o.data, static_cast<const T*>(call.grad_out) + (row * H + h) * D + column, count);
            }
            const T *const k = own.keys[e].k, *const v = this->v(at) + column, *const p = own.p + e * block;
            f.gather(G, {own.after + e * K * block, block}, k, is_last ? this->q(row, h) : nullptr, own.grad_o.data,
                     own.alpha + e * block, K, own.w.data, own.by_k + e * K, own.by_q + e / M * K);
            const double s = own.keys[e].inverse, beta_s = static_cast<double>(this->beta(at)) * s, tau = beta_s * s;
            double by_v = 0, by_p = 0;
            for (i64 j = 0; j < count; ++j) {
                const double w = static_cast<double>(own.w[j]);
                own.tau_w[j] = static_cast<T>(tau * w);
                by_v += static_cast<double>(v[j]) * w;
                by_p += static_cast<double>(p[j]) * w;
            }
            for (i64 j = count; j < columns; ++j) own.tau_w[j] = 0;
            own.by_v[e] += by_v;
            own.by_p[e] += by_p;
            if (call.grad_v) {
                T* const to = static_cast<T*>(call.grad_v) + at * D + column;
                for (i64 j = 0; j < count; ++j) to[j] = static_cast<T>(beta_s * static_cast<double>(own.w[j]));
            }
            f.scatter(G, before(own, row, e, column), e % M ? Gate<T>{nullptr, 1} : this->gate(row, h), k, own.tau_w.data, K,
                      own.by_k + e * K, own.by_gate + e / M * in.gates);
            if (e % M == 0 && this->resets(row)) cut(b, h, G, column, count, columns);
        }
    }

    // What arrives at a state that was replaced goes to the one it was replaced by. The columns beyond `count` are of no
    // state, but take part in sums: they are cleared, too, since 0 times what is not finite may have been added to them.
    void cut(i64 b, i64 h, Columns<T> G, i64 column, i64 count, i64 columns) const {
        T* const to = static_cast<T*>(call.grad_restart);
        for (i64 i = 0; i < K; ++i) {
            for (i64 j = 0; to && j < count; ++j) to[this->state(b, h) + i * D + column + j] += G.row(i)[j];
            clear(G.row(i), columns);
        }
    }

    void write(Part& own, i64 b, i64 h, i64 begin, i64 end) const {
        for (i64 e = 0; e < (end - begin) * M; ++e) {
            const i64 row = this->row(begin + e / M, b), at = this->update(row, e % M, h);
            const Scaled<T>& key = own.keys[e];
            const double s = key.inverse, beta = static_cast<double>(this->beta(at));
            if (call.grad_beta)
                static_cast<T*>(call.grad_beta)[at] = static_cast<T>(s * own.by_v[e] - s * s * own.by_p[e]);
            if (call.grad_k) {
                const bool is_short = s >= 1 / shortest_key;
                const double along = is_short ? 0 : -s * s * s * beta * (own.by_v[e] - 2 * s * own.by_p[e]);
                T* const to = static_cast<T*>(call.grad_k) + at * K;
                for (i64 i = 0; i < K; ++i)
                    to[i] = key.c * static_cast<T>(static_cast<double>(own.by_k[e * K + i]) +
                                                   along * static_cast<double>(key.k[i]));
            }
        }
        for (i64 t = begin; t < end; ++t) {
            const i64 at = this->row(t, b) * H + h;
            if (call.grad_q) copy(static_cast<T*>(call.grad_q) + at * K, own.by_q + (t - begin) * K, K);
            if (call.grad_gate)
                copy(static_cast<T*>(call.grad_gate) + at * in.gates, own.by_gate + (t - begin) * in.gates, in.gates);
        }
    }

    void find_keys(Part& own, i64 b, i64 h, i64 begin, i64 end) const {
        for (i64 e = 0; e < (end - begin) * M; ++e)
            own.keys[e] = this->key(this->k(this->update(this->row(begin + e / M, b), e % M, h)), own.spare + e * K);
    }

    // body(head, begin, end) finds the keys and adds the gradients of every chunk's updates of `count` heads, the last chunk
    // first.
    template <class Body>
    void run(Part& own, i64 b, i64 h, i64 count, const Body& body) const {
        const i64 steps = length(rows, b), size = K * this->stride;
        const auto each = [&](const auto& visit) {
            for (i64 i = 0; i < count; ++i) {
                own.G = own.gradients + i * size;
                own.restart = own.restarts + (rows.resets ? i * size : 0);
                visit(h + i);
            }
        };
        const auto given = [&](const void* states, i64 head) {
            return states ? static_cast<const T*>(states) + this->state(b, head) : nullptr;
        };
        each([&](i64 head) {
            this->unpack(given(call.grad_last, head), own.G);
            if (rows.resets) this->unpack(given(in.restart, head), own.restart);
            if (call.grad_restart) clear(static_cast<T*>(call.grad_restart) + this->state(b, head), K * D);
        });
        for (i64 begin = (steps - 1) / in.chunk * in.chunk; steps && begin >= 0; begin -= in.chunk) {
            const i64 end = minimum(begin + in.chunk, steps);
            each([&](i64 head) {
                own.begin = this->read_mark(static_cast<const T*>(call.marks) + this->mark(begin, b, head), own.before.data);
                clear(own.by_k.data, updates * K);
                clear(own.by_q.data, in.chunk * K);
                clear(own.by_gate.data, in.chunk * in.gates);
                clear(own.by_v.data, updates);
                clear(own.by_p.data, updates);
                body(head, begin, end);
                write(own, b, head, begin, end);
            });
            if (should_stop(call.run.interrupt)) return;
        }
        if (call.grad_start)
            each([&](i64 head) { this->pack(own.G, static_cast<T*>(call.grad_start) + this->state(b, head)); });
    }
};

template <class T>
void delta_backward(const DeltaBackward& call) {
    const FlushDenormals flush;
    const DeltaBackwardWork<T> work(call);
    using Part = DeltaBackwardPart<T>;
    work.template over_heads<Part>(call.run, 1, [&](Part& own, i64 b, i64 first, i64) {
        work.run(own, b, first, 1, [&](i64 h, i64 begin, i64 end) {
            work.find_keys(own, b, h, begin, end);
            work.over_blocks([&](i64 column, i64 columns, const DeltaFunctions<T>& f) {
                work.repeat(own, b, h, begin, end, column, columns, f);
                work.reverse(own, b, h, begin, end, column, columns, f);
            });
        });
    });
}

}  // namespace orthornn::ORTHORNN_ISA
