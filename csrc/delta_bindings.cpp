// delta_forward and delta_backward of the Python module. Addresses come as numbers, 0 for none; sizes and alignment are
// checked here, before the interpreter lock is released.
#include "arguments.hpp"
#include "delta_call.hpp"

using namespace nanobind::literals;

namespace orthornn {
namespace {

DeltaInputs inputs(const Sizes& sizes, i64 M, i64 heads, i64 keys, i64 values, i64 chunk, Number q, Number k, Number v,
                   Number beta, Number gate, i64 gates, Number start, Number restart) {
    at_least("M", M, 1);
    at_least("heads", heads, 1);
    at_least("keys", keys, 1);
    at_least("values", values, 1);
    at_least("chunk", chunk, 1);
    if (gate && gates != 1 && gates != keys) fail("Expected gates to be 1 or keys.");
    const bool sequences = sizes.B > 0;
    return {M, heads, keys, values, chunk, sizes.array("q", q, true), sizes.array("k", k, true), sizes.array("v", v, true),
            sizes.array("beta", beta, true), sizes.array("gate", gate), gate ? gates : 1,
            memory("start", start, sizes.element, sequences), sizes.array("restart", restart)};
}

void forward(i64 element_size, i64 T, i64 B, i64 R, Number batch_sizes, Number resets, i64 M, i64 heads, i64 keys,
             i64 values, i64 chunk, Number q, Number k, Number v, Number beta, Number gate, i64 gates, Number start,
             Number restart, Number out, Number last, Number marks, int threads) {
    Sizes sizes(element_size, T, B, 1, R, batch_sizes);
    sizes.rows.resets = static_cast<const unsigned char*>(memory("resets", resets, 1, false));
    DeltaForward call{};
    call.rows = sizes.rows;
    call.in = inputs(sizes, M, heads, keys, values, chunk, q, k, v, beta, gate, gates, start, restart);
    call.out = sizes.array("out", out, true);
    call.last = memory("last", last, element_size, B > 0);
    call.marks = sizes.array("marks", marks);
    execute(ORTHORNN_TABLE(delta, element_size).forward, call, threads);
}

void backward(i64 element_size, i64 T, i64 B, i64 R, Number batch_sizes, Number resets, i64 M, i64 heads, i64 keys,
              i64 values, i64 chunk, Number q, Number k, Number v, Number beta, Number gate, i64 gates, Number start,
              Number restart, Number marks, Number grad_out, Number grad_last, Number grad_q, Number grad_k, Number grad_v,
              Number grad_beta, Number grad_gate, Number grad_start, Number grad_restart, int threads) {
    Sizes sizes(element_size, T, B, 1, R, batch_sizes);
    sizes.rows.resets = static_cast<const unsigned char*>(memory("resets", resets, 1, false));
    DeltaBackward call{};
    call.rows = sizes.rows;
    call.in = inputs(sizes, M, heads, keys, values, chunk, q, k, v, beta, gate, gates, start, restart);
    call.marks = sizes.array("marks", marks, true);
    call.grad_out = sizes.array("grad_out", grad_out);
    call.grad_last = sizes.array("grad_last", grad_last);
    call.grad_q = sizes.array("grad_q", grad_q);
    call.grad_k = sizes.array("grad_k", grad_k);
    call.grad_v = sizes.array("grad_v", grad_v);
    call.grad_beta = sizes.array("grad_beta", grad_beta);
    call.grad_gate = gate ? sizes.array("grad_gate", grad_gate) : nullptr;
    call.grad_start = sizes.array("grad_start", grad_start);
    call.grad_restart = resets ? sizes.array("grad_restart", grad_restart) : nullptr;
    const FlushDenormals flush;
    execute(ORTHORNN_TABLE(delta, element_size).backward, call, threads);
}

}  // namespace

void add_delta(nb::module_& m) {
    m.def("delta_forward", &forward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "R"_a, "batch_sizes"_a, "resets"_a,
          "M"_a, "heads"_a, "keys"_a, "values"_a, "chunk"_a, "q"_a, "k"_a, "v"_a, "beta"_a, "gate"_a, "gates"_a, "start"_a,
          "restart"_a, "out"_a, "last"_a, "marks"_a, "threads"_a);
    m.def("delta_backward", &backward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "R"_a, "batch_sizes"_a, "resets"_a,
          "M"_a, "heads"_a, "keys"_a, "values"_a, "chunk"_a, "q"_a, "k"_a, "v"_a, "beta"_a, "gate"_a, "gates"_a, "start"_a,
          "restart"_a, "marks"_a, "grad_out"_a, "grad_last"_a, "grad_q"_a, "grad_k"_a, "grad_v"_a, "grad_beta"_a,
          "grad_gate"_a, "grad_start"_a, "grad_restart"_a, "threads"_a);
}

}  // namespace orthornn
