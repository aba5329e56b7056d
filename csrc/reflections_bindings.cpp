// reflections_forward and reflections_backward of the Python module. Addresses come as numbers, 0 for none; sizes, indices
// and alignment are checked here, before the interpreter lock is released.
#include "arguments.hpp"
#include "reflections_call.hpp"

using namespace nanobind::literals;

namespace orthornn {
namespace {

constexpr bool keeps_z(int code) { return code == 5 || code == 7 || code == 8; }

Phi phi(const Sizes& sizes, int code, double slope, Number parameter) {
    if (code < 0 || code > 8) fail("Expected an activation code from 0 to 8, but got " + std::to_string(code) + ".");
    if (code == 7 && sizes.N % 2) fail("Expected an even N for complex_modrelu, but got " + std::to_string(sizes.N) + ".");
    const bool trained = code == 2 || code == 5 || code == 6 || code == 7;
    return {code, slope, memory("parameter", parameter, sizes.element, trained)};
}

ReflectionTables tables(const Sizes& sizes, i64 M, i64 heads, i64 S, Number index, Number k, Number beta, Number gate,
                        i64 gates, Number turn, i64 turns, Number add, Number inverse) {
    at_least("M", M, 1);
    at_least("heads", heads, 1);
    at_least("S", S, 0);
    if (sizes.N % heads) fail("Expected heads that divide N.");
    if (gate && gates != heads && gates != sizes.N) fail("Expected gates to be heads or N.");
    if (turn && turns != 1 && turns != S) fail("Expected turns to be 1 or S.");
    const i64* const rows = static_cast<const i64*>(memory("index", index, 8, false));
    if (!rows && S != sizes.R) fail("Expected S to be R without an index.");
    for (i64 r = 0; rows && r < sizes.R; ++r)
        if (rows[r] < 0 || rows[r] >= S)
            throw nb::index_error(("Expected tokens in [0, " + std::to_string(S) + "), but got " + std::to_string(rows[r]) +
                                   " in row " + std::to_string(r) + ".").c_str());
    return {M, heads, S, rows, sizes.array("k", k, true), sizes.array("beta", beta, true), sizes.array("gate", gate),
            gate ? gates : 0, sizes.array("turn", turn), turns, sizes.array("add", add),
            static_cast<double*>(memory("inverse", inverse, 8, sizes.R > 0))};
}

void forward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Number batch_sizes, Number resets, i64 M, i64 heads, i64 S, Number index,
             Number k, Number beta, Number gate, i64 gates, Number turn, i64 turns, Number add, Number inverse,
             int activation, double slope, Number parameter, Number h0, Number restart, Number states, Number kept, Number last,
             Number dots, int threads) {
    Sizes sizes(element_size, T, B, N, R, batch_sizes);
    sizes.rows.resets = static_cast<const unsigned char*>(memory("resets", resets, 1, false));
    ReflectionForward call{};
    call.rows = sizes.rows;
    call.phi = phi(sizes, activation, slope, parameter);
    call.tables = tables(sizes, M, heads, S, index, k, beta, gate, gates, turn, turns, add, inverse);
    call.h0 = sizes.array("h0", h0);
    call.restart = sizes.array("restart", restart);
    call.states = sizes.array("states", states);
    call.kept = keeps_z(activation) ? sizes.array("kept", kept) : nullptr;
    call.last = sizes.array("last", last);
    call.dots = sizes.array("dots", dots);
    execute(ORTHORNN_TABLE(reflections, element_size).forward, call, threads);
}

void backward(i64 element_size, i64 T, i64 B, i64 N, i64 R, Number batch_sizes, Number resets, i64 M, i64 heads, i64 S, Number index,
              Number k, Number beta, Number gate, i64 gates, Number turn, i64 turns, Number add, Number inverse,
              int activation, double slope, Number parameter, double clip, Number h0, Number restart, Number states, Number kept,
              Number dots, Number grad_states, Number grad_last, Number grad_k, Number grad_beta, Number grad_gate,
              Number grad_angle, Number grad_add, Number grad_h0, Number grad_parameter, Number grad_restart, int threads) {
    Sizes sizes(element_size, T, B, N, R, batch_sizes);
    sizes.rows.resets = static_cast<const unsigned char*>(memory("resets", resets, 1, false));
    if (!(clip > 0)) fail("Expected a positive clip (infinity for none), but got " + std::to_string(clip) + ".");
    ReflectionBackward call{};
    call.rows = sizes.rows;
    call.phi = phi(sizes, activation, slope, parameter);
    call.tables = tables(sizes, M, heads, S, index, k, beta, gate, gates, turn, turns, add, inverse);
    call.clip = clip;
    call.h0 = sizes.array("h0", h0);
    call.restart = sizes.array("restart", restart);
    call.states = sizes.array("states", states, true);
    call.kept = sizes.array("kept", kept, true);
    call.dots = sizes.array("dots", dots, true);
    call.grad_states = sizes.array("grad_states", grad_states);
    call.grad_last = sizes.array("grad_last", grad_last);
    call.grad_k = sizes.array("grad_k", grad_k);
    call.grad_beta = sizes.array("grad_beta", grad_beta);
    call.grad_gate = sizes.array("grad_gate", grad_gate);
    call.grad_angle = sizes.array("grad_angle", grad_angle);
    call.grad_add = sizes.array("grad_add", grad_add);
    call.grad_h0 = sizes.array("grad_h0", grad_h0);
    call.grad_restart = sizes.array("grad_restart", grad_restart);
    call.grad_parameter = sizes.array("grad_parameter", grad_parameter);
    const FlushDenormals flush;
    execute(ORTHORNN_TABLE(reflections, element_size).backward, call, threads);
}

}  // namespace

void add_reflections(nb::module_& m) {
    m.def("reflections_forward", &forward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, "batch_sizes"_a,
          "resets"_a, "M"_a, "heads"_a, "S"_a, "index"_a, "k"_a, "beta"_a, "gate"_a, "gates"_a, "turn"_a, "turns"_a, "add"_a,
          "inverse"_a, "activation"_a, "slope"_a, "parameter"_a, "h0"_a, "restart"_a, "states"_a, "kept"_a, "last"_a, "dots"_a,
          "threads"_a);
    m.def("reflections_backward", &backward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "N"_a, "R"_a, "batch_sizes"_a,
          "resets"_a, "M"_a, "heads"_a, "S"_a, "index"_a, "k"_a, "beta"_a, "gate"_a, "gates"_a, "turn"_a, "turns"_a, "add"_a,
          "inverse"_a, "activation"_a, "slope"_a, "parameter"_a, "clip"_a, "h0"_a, "restart"_a, "states"_a, "kept"_a, "dots"_a,
          "grad_states"_a, "grad_last"_a, "grad_k"_a, "grad_beta"_a, "grad_gate"_a, "grad_angle"_a, "grad_add"_a,
          "grad_h0"_a, "grad_parameter"_a, "grad_restart"_a, "threads"_a);
}

}  // namespace orthornn
