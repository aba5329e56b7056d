// delta_forward and delta_backward of the Python module.
#include "arguments.hpp"
#include "delta_call.hpp"

using namespace nb::literals;

namespace orthornn {
namespace {

DeltaInputs inputs(const Sequences& given, i64 M, i64 heads, i64 keys, i64 values, i64 chunk, bool products, Address q,
                   Address k, Address v, Address beta, Address gate, i64 gates, Address start, Address restart) {
    at_least("M", M, 1);
    at_least("heads", heads, 1);
    at_least("keys", keys, 1);
    at_least("values", values, 1);
    at_least("chunk", chunk, 1);
    if (gate && gates != 1 && gates != keys)
        fail("Expected gates to be 1 or keys = " + std::to_string(keys) + ", but got " + std::to_string(gates) + ".");
    return {M,
            heads,
            keys,
            values,
            chunk,
            given.needed("q", q, given.R),
            given.needed("k", k, given.R),
            given.needed("v", v, given.R),
            given.needed("beta", beta, given.R),
            given.optional("gate", gate),
            gate ? gates : 1,
            given.needed("start", start, given.B),
            given.optional("restart", restart),
            products};
}

void forward(i64 element_size, i64 T, i64 B, i64 R, Address batch_sizes, Address resets, i64 M, i64 heads, i64 keys,
             i64 values, i64 chunk, bool products, Address q, Address k, Address v, Address beta, Address gate, i64 gates,
             Address start, Address restart, Address out, Address last, Address marks, int threads) {
    const Sequences given(element_size, T, B, 1, R, batch_sizes, resets);
    DeltaForward call{};
    call.rows = given.rows;
    call.in = inputs(given, M, heads, keys, values, chunk, products, q, k, v, beta, gate, gates, start, restart);
    call.out = given.needed("out", out, given.R);
    call.last = given.needed("last", last, B);
    call.marks = given.optional("marks", marks);
    execute(delta_table(chosen(), element_size).forward, call, threads);
}

void backward(i64 element_size, i64 T, i64 B, i64 R, Address batch_sizes, Address resets, i64 M, i64 heads, i64 keys,
              i64 values, i64 chunk, bool products, Address q, Address k, Address v, Address beta, Address gate, i64 gates,
              Address start, Address restart, Address marks, Address grad_out, Address grad_last, Address grad_q,
              Address grad_k, Address grad_v, Address grad_beta, Address grad_gate, Address grad_start, Address grad_restart,
              int threads) {
    const Sequences given(element_size, T, B, 1, R, batch_sizes, resets);
    DeltaBackward call{};
    call.rows = given.rows;
    call.in = inputs(given, M, heads, keys, values, chunk, products, q, k, v, beta, gate, gates, start, restart);
    call.marks = given.needed("marks", marks, given.R);
    call.grad_out = given.optional("grad_out", grad_out);
    call.grad_last = given.optional("grad_last", grad_last);
    call.grad_q = given.optional("grad_q", grad_q);
    call.grad_k = given.optional("grad_k", grad_k);
    call.grad_v = given.optional("grad_v", grad_v);
    call.grad_beta = given.optional("grad_beta", grad_beta);
    call.grad_gate = gate ? given.optional("grad_gate", grad_gate) : nullptr;
    call.grad_start = given.optional("grad_start", grad_start);
    call.grad_restart = given.optional("grad_restart", grad_restart);
    execute(delta_table(chosen(), element_size).backward, call, threads);
}

}  // namespace

void add_delta(nb::module_& m) {
    m.def("delta_forward", &forward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "R"_a, at("batch_sizes"), at("resets"),
          "M"_a, "heads"_a, "keys"_a, "values"_a, "chunk"_a, "products"_a, at("q"), at("k"), at("v"), at("beta"), at("gate"),
          "gates"_a, at("start"), at("restart"), at("out"), at("last"), at("marks"), "threads"_a);
    m.def("delta_backward", &backward, nb::kw_only(), "element_size"_a, "T"_a, "B"_a, "R"_a, at("batch_sizes"), at("resets"),
          "M"_a, "heads"_a, "keys"_a, "values"_a, "chunk"_a, "products"_a, at("q"), at("k"), at("v"), at("beta"), at("gate"),
          "gates"_a, at("start"), at("restart"), at("marks"), at("grad_out"), at("grad_last"), at("grad_q"), at("grad_k"),
          at("grad_v"), at("grad_beta"), at("grad_gate"), at("grad_start"), at("grad_restart"), "threads"_a);
}

}  // namespace orthornn
