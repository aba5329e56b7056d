// A recurrent network for real-time audio: header only, C++17, no dependencies.
//
//     h_t = phi(W h_{t-1} + V x_t + b),    y_t = Y h_t + d
//
// W is a product of M reflections and a base, W = (I - A U') B with B h = c * h + s * swap(h), so that a step costs
// 2 N M + 2 N multiply-adds; or a matrix (DenseTransition).
//
// Real time. Weights and state are members: a network never allocates, locks or calls the system after it was made, and a
// step takes the same path for all inputs. from_json() is for before the audio runs: it allocates, and throws.
// Loops have sizes that are known to the compiler; sums and activations run in vector registers (plain loops with other
// compilers than g++ and clang++, or with ORTHORNN_PLAIN_LOOPS). Compile with -O3, -march= the oldest processor
// that is supported, and -ffp-contract=fast.
//
// Denormals. process() of a block sets the processor to treat them as zero, and sets it back (FlushDenormals). Where
// process() of single samples is called, make a FlushDenormals around the loop.
//
// A NaN in the input may stay in the state; call reset() where a host may send one.
//
//     using Net = orthornn::Network<orthornn::Reflections<64, 8>, orthornn::ModReLU>;
//     static Net net;                             // before the audio runs
//     orthornn::from_json(net, text_of_the_file);
//     orthornn::rate_warning(net, host_rate);     // "", or what to tell the user
//     net.process(input, output, frames);         // in the audio callback
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SSE2__) || defined(_M_X64) || (defined(_M_IX86_FP) && _M_IX86_FP >= 2)
#define ORTHORNN_HAS_MXCSR 1
#include <xmmintrin.h>
#endif

namespace orthornn {

// Treats denormal numbers as zero while it lives: on x86 with SSE2 and, with GCC or clang, on 64-bit ARM. Elsewhere it does
// nothing.
class FlushDenormals {
public:
#if defined(ORTHORNN_HAS_MXCSR)
    FlushDenormals() noexcept : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
    ~FlushDenormals() { _mm_setcsr(before_); }
#elif defined(__aarch64__)
    FlushDenormals() noexcept
    {
        __asm__ __volatile__("mrs %0, fpcr" : "=r"(before_));
        const std::uint64_t flushing = before_ | (std::uint64_t{1} << 24);
        __asm__ __volatile__("msr fpcr, %0" : : "r"(flushing));
    }
    ~FlushDenormals() { __asm__ __volatile__("msr fpcr, %0" : : "r"(before_)); }
#else
    FlushDenormals() noexcept : before_(0) {}
#endif
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

private:
#if defined(ORTHORNN_HAS_MXCSR)
    unsigned before_;
#else
    std::uint64_t before_;
#endif
};

namespace detail {

// z = tanh(z) for a float or a vector of them, by a quotient of two polynomials on [-7.9, 7.9] (the coefficients are those of
// Eigen's generic_fast_tanh_float): within 5e-7 of std::tanh, and without a branch.
template <class V>
inline void tanh_of(V& z) noexcept
{
    const V end = V{} + 7.90531110763549805f;
    V x = z;
    x = x < -end ? -end : x;
    x = x > end ? end : x;
    const V q = x * x;
    V p = q * -2.76076847742355e-16f + 2.00018790482477e-13f;
    p = p * q - 8.60467152213735e-11f;
    p = p * q + 5.12229709037114e-08f;
    p = p * q + 1.48572235717979e-05f;
    p = p * q + 6.37261928875436e-04f;
    p = p * q + 4.89352455891786e-03f;
    V r = q * 1.19825839466702e-06f + 1.18534705686654e-04f;
    r = r * q + 2.26843463243900e-03f;
    r = r * q + 4.89352518554385e-03f;
    z = x * p / r;
}

}  // namespace detail

inline float fast_tanh(float x) noexcept
{
    detail::tanh_of(x);
    return x;
}

// Activations: z = phi(z) for a float or a vector of them; b is modReLU's parameter, c that of the scaled tanh.
struct Identity {
    static constexpr const char* name = "identity";
    template <class V>
    static void apply(V&, const V&) noexcept
    {
    }
};
struct Tanh {
    static constexpr const char* name = "tanh";
    template <class V>
    static void apply(V& z, const V&) noexcept
    {
        detail::tanh_of(z);
    }
};
struct ScaledTanh {
    static constexpr const char* name = "scaled_tanh";
    template <class V>
    static void apply(V& z, const V& c) noexcept
    {
        const V none{};
        V t = c * z;
        detail::tanh_of(t);
        z = c > none ? t / c : c < none ? t / c : z;
    }
};
struct ReLU {
    static constexpr const char* name = "relu";
    template <class V>
    static void apply(V& z, const V&) noexcept
    {
        z = z < V{} ? V{} : z;
    }
};
struct ModReLU {
    static constexpr const char* name = "modrelu";
    template <class V>
    static void apply(V& z, const V& b) noexcept
    {
        const V none{};
        const V up = z + b, down = z - b;
        const V first = up > none ? up : none, second = down < none ? down : none;
        z = z > none ? first : z < none ? second : z;  // a NaN stays
    }
};

namespace detail {

// Sizes are int, as template parameters and in loops; lengths of arrays are std::size_t.
constexpr std::size_t extent(int n) { return static_cast<std::size_t>(n); }

// W neighboring floats in a vector register: the vector types of g++ and clang++, a loop for other compilers. (g++ 12 unrolls
// short plain loops before it looks for vectors, and then finds none.)
template <int W>
struct Lanes {
    static Lanes load(const float* from) noexcept
    {
        Lanes found;
        for (int k = 0; k < W; k++)
            found.value[k] = from[k];
        return found;
    }
    static Lanes zero() noexcept
    {
        const float zeros[extent(W)] = {};
        return load(zeros);
    }
    void store(float* to) const noexcept
    {
        for (int k = 0; k < W; k++)
            to[k] = value[k];
    }
    void add_product(Lanes a, float b) noexcept
    {
        for (int k = 0; k < W; k++)
            value[k] += a.value[k] * b;
    }
    void add_product(Lanes a, Lanes b) noexcept
    {
        for (int k = 0; k < W; k++)
            value[k] += a.value[k] * b.value[k];
    }
    void add(Lanes a) noexcept
    {
        for (int k = 0; k < W; k++)
            value[k] += a.value[k];
    }
    template <class Phi>
    void activate(Lanes b) noexcept
    {
        for (int k = 0; k < W; k++)
            Phi::apply(value[k], b.value[k]);
    }
    float at(int k) const noexcept { return value[k]; }
    float value[extent(W)];
};

#if defined(__GNUC__) && !defined(ORTHORNN_PLAIN_LOOPS)
#define ORTHORNN_LANES(W)                                                                                        \
    template <>                                                                                                  \
    struct Lanes<W> {                                                                                            \
        typedef float Value __attribute__((vector_size(W * sizeof(float))));                                     \
        typedef float Memory __attribute__((vector_size(W * sizeof(float)), aligned(sizeof(float)), may_alias)); \
        static Lanes load(const float* from) noexcept { return {*reinterpret_cast<const Memory*>(from)}; }       \
        static Lanes zero() noexcept { return {Value{}}; }                                                       \
        void store(float* to) const noexcept { *reinterpret_cast<Memory*>(to) = value; }                         \
        void add_product(Lanes a, float b) noexcept { value += a.value * b; }                                    \
        void add_product(Lanes a, Lanes b) noexcept { value += a.value * b.value; }                              \
        void add(Lanes a) noexcept { value += a.value; }                                                         \
        template <class Phi>                                                                                     \
        void activate(Lanes b) noexcept                                                                          \
        {                                                                                                        \
            Phi::apply(value, b.value);                                                                          \
        }                                                                                                        \
        float at(int k) const noexcept { return value[k]; }                                                      \
        Value value;                                                                                             \
    };
ORTHORNN_LANES(2)
ORTHORNN_LANES(4)
ORTHORNN_LANES(8)
ORTHORNN_LANES(16)
#undef ORTHORNN_LANES
#endif

template <>
struct Lanes<1> {
    static Lanes load(const float* from) noexcept { return {*from}; }
    static Lanes zero() noexcept { return {0.0f}; }
    void store(float* to) const noexcept { *to = value; }
    void add_product(Lanes a, float b) noexcept { value += a.value * b; }
    void add_product(Lanes a, Lanes b) noexcept { value += a.value * b.value; }
    void add(Lanes a) noexcept { value += a.value; }
    template <class Phi>
    void activate(Lanes b) noexcept
    {
        Phi::apply(value, b.value);
    }
    float at(int) const noexcept { return value; }
    float value;
};

#if defined(__AVX512F__)
constexpr int widest = 16;
#else
constexpr int widest = 8;
#endif

constexpr int width_of(int n) { return n % widest == 0 ? widest : n % 8 == 0 ? 8 : n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1; }
constexpr int group_of(int n) { return n % 8 == 0 ? 8 : n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1; }

// z = z + sum over rows of A (K, N) times t
template <int K, int N>
inline void add_rows(const float* A, const float* t, float* z) noexcept
{
    constexpr int W = width_of(N), G = group_of(N / W);
    for (int i = 0; i < N; i += W * G) {
        Lanes<W> sum[extent(G)];
        for (int g = 0; g < G; g++)
            sum[g] = Lanes<W>::load(z + i + g * W);
        for (int j = 0; j < K; j++)
            for (int g = 0; g < G; g++)
                sum[g].add_product(Lanes<W>::load(A + j * N + i + g * W), t[j]);
        for (int g = 0; g < G; g++)
            sum[g].store(z + i + g * W);
    }
}

// t = -U' h for U (N, M), in chains of sums that do not wait for each other
template <int N, int M>
inline void negative_products(const float* U, const float* h, float* t) noexcept
{
    constexpr int W = width_of(M), G = group_of(N);
    for (int j = 0; j < M; j += W) {
        Lanes<W> sum[extent(G)];
        for (int g = 0; g < G; g++)
            sum[g] = Lanes<W>::zero();
        for (int i = 0; i < N; i += G)
            for (int g = 0; g < G; g++)
                sum[g].add_product(Lanes<W>::load(U + (i + g) * M + j), -h[i + g]);
        for (int half = G / 2; half > 0; half /= 2)
            for (int g = 0; g < half; g++)
                sum[g].add(sum[g + half]);
        sum[0].store(t + j);
    }
}

// a' b
template <int N>
inline float dot(const float* a, const float* b) noexcept
{
    constexpr int W = width_of(N), G = group_of(N / W);
    Lanes<W> sum[extent(G)];
    for (int g = 0; g < G; g++)
        sum[g] = Lanes<W>::zero();
    for (int i = 0; i < N; i += W * G)
        for (int g = 0; g < G; g++)
            sum[g].add_product(Lanes<W>::load(a + i + g * W), Lanes<W>::load(b + i + g * W));
    for (int half = G / 2; half > 0; half /= 2)
        for (int g = 0; g < half; g++)
            sum[g].add(sum[g + half]);
    alignas(64) float part[extent(W)];
    sum[0].store(part);
    for (int half = W / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            part[k] += part[k + half];
    return part[0];
}

// h = c * h + s * swap(h): swap exchanges the halves, a middle unit stays
template <int N>
inline void rotate(const float* c, const float* s, float* h) noexcept
{
    constexpr int half = N / 2, gap = N - half;
    if constexpr (half > 0) {
        constexpr int W = width_of(half);
        for (int i = 0; i < half; i += W) {
            const Lanes<W> p = Lanes<W>::load(h + i), q = Lanes<W>::load(h + i + gap);
            Lanes<W> first = Lanes<W>::zero(), second = Lanes<W>::zero();
            first.add_product(Lanes<W>::load(c + i), p);
            first.add_product(Lanes<W>::load(s + i), q);
            second.add_product(Lanes<W>::load(c + i + gap), q);
            second.add_product(Lanes<W>::load(s + i + gap), p);
            first.store(h + i);
            second.store(h + i + gap);
        }
    }
    if constexpr (half != gap)
        h[half] *= c[half] + s[half];
}

// h = phi(h + V' x + b) for V (K, N)
template <int K, int N, class Phi>
inline void finish(const float* V, const float* x, const float* b, const float* parameter, float* h) noexcept
{
    constexpr int W = width_of(N);
    for (int i = 0; i < N; i += W) {
        Lanes<W> z = Lanes<W>::load(h + i);
        z.add(Lanes<W>::load(b + i));
        for (int j = 0; j < K; j++)
            z.add_product(Lanes<W>::load(V + j * N + i), x[j]);
        z.template activate<Phi>(Lanes<W>::load(parameter + i));
        z.store(h + i);
    }
}

}  // namespace detail

// W = (I - A U') B, A = U S of the compact WY form; M = 0 for B alone.
template <int N, int M>
class Reflections {
public:
    static constexpr int units = N;
    static constexpr const char* name = "reflections";
    static constexpr int reflections = M;

    // h = W h
    void apply(float* h) const noexcept
    {
        detail::rotate<N>(c, s, h);
        if constexpr (M > 0) {
            alignas(64) float t[detail::extent(M)];
            detail::negative_products<N, M>(U, h, t);
            detail::add_rows<M, N>(A, t, h);
        }
    }

    alignas(64) float U[detail::extent(N * (M > 0 ? M : 1))] = {};  // (N, M)
    alignas(64) float A[detail::extent(N * (M > 0 ? M : 1))] = {};  // (M, N)
    alignas(64) float c[detail::extent(N)] = {}, s[detail::extent(N)] = {};

    template <class Reader>
    void read(Reader& reader)
    {
        if (M > 0) {
            reader.matrix("U", U, N, M);
            reader.matrix("A", A, M, N);
        }
        reader.vector("c", c, N);
        reader.vector("s", s, N);
    }
};

// W as a matrix.
template <int N>
class DenseTransition {
public:
    static constexpr int units = N;
    static constexpr const char* name = "dense";
    static constexpr int reflections = 0;

    void apply(float* h) const noexcept
    {
        alignas(64) float z[detail::extent(N)] = {};
        detail::add_rows<N, N>(W, h, z);
        for (int i = 0; i < N; i++)
            h[i] = z[i];
    }

    alignas(64) float W[detail::extent(N * N)] = {};  // (N, N), column by column: W[j * N + i] goes from unit j to unit i

    template <class Reader>
    void read(Reader& reader)
    {
        reader.matrix("W", W, N, N);
    }
};

// One recurrent layer and a linear readout.
template <class Transition, class Phi, int Inputs = 1, int Outputs = 1>
class Network {
public:
    static constexpr int units = Transition::units, inputs = Inputs, outputs = Outputs;

    Network() noexcept { reset(); }

    // Back to the state before the first sample.
    void reset() noexcept
    {
        for (int i = 0; i < units; i++)
            h_[i] = h0[i];
    }

    // One step: x is Inputs numbers, y is Outputs numbers; they may be the same memory.
    void step(const float* x, float* y) noexcept
    {
        constexpr int N = units;
        transition.apply(h_);
        detail::finish<Inputs, N, Phi>(V, x, b, parameter, h_);
        float found[detail::extent(Outputs)];
        for (int o = 0; o < Outputs; o++)
            found[o] = d[o] + detail::dot<N>(Y + o * N, h_);
        for (int o = 0; o < Outputs; o++)
            y[o] = found[o];
    }

    // One sample, of a network with one input and one output.
    float process(float x) noexcept
    {
        static_assert(Inputs == 1 && Outputs == 1, "process(float) is for one input and one output; call step()");
        float y;
        step(&x, &y);
        return y;
    }

    // A block: frames times Inputs numbers in, frames times Outputs numbers out. In place if there are as many.
    void process(const float* x, float* y, std::size_t frames) noexcept
    {
        const FlushDenormals flushing;
        for (std::size_t t = 0; t < frames; t++)
            step(x + t * Inputs, y + t * Outputs);
    }

    const float* state() const noexcept { return h_; }

    Transition transition;
    alignas(64) float V[detail::extent(Inputs * units)] = {};  // (Inputs, N)
    alignas(64) float b[detail::extent(units)] = {}, parameter[detail::extent(units)] = {}, h0[detail::extent(units)] = {};
    alignas(64) float Y[detail::extent(Outputs * units)] = {};  // (Outputs, N)
    alignas(64) float d[detail::extent(Outputs)] = {};
    double sample_rate = 0;  // Hz, of the sounds of the training; 0 if the file does not have it

    template <class Reader>
    void read(Reader& reader)
    {
        reader.expect("format", "orthornn-audio-1");
        reader.expect("nonlinearity", Phi::name);
        reader.expect("transition", Transition::name);
        reader.expect("inputs", Inputs);
        reader.expect("outputs", Outputs);
        reader.expect("units", units);
        reader.expect("reflections", Transition::reflections);
        transition.read(reader);
        reader.matrix("V", V, Inputs, units);
        reader.vector("b", b, units);
        reader.vector("parameter", parameter, units);
        reader.vector("h0", h0, units);
        reader.matrix("Y", Y, Outputs, units);
        reader.vector("d", d, Outputs);
        sample_rate = reader.rate("sample_rate");
        reset();
    }

private:
    alignas(64) float h_[detail::extent(units)];
};

namespace detail {

// Just enough of JSON for the files that `orthornn export --audio` writes; throws std::runtime_error for everything else.
class Json {
public:
    enum class Kind { null, boolean, number, string, array, object };
    Kind kind = Kind::null;
    double number = 0;
    std::string text;
    std::vector<Json> items;
    std::map<std::string, Json> members;

    static Json parse(const std::string& source)
    {
        Json found;
        const char* at = source.c_str();
        const char* const end = at + source.size();
        if (source.compare(0, 3, "\xEF\xBB\xBF") == 0)  // a byte-order mark
            at += 3;
        found.read(at, end, 0);
        skip(at, end);
        if (at != end)
            fail("more text after the end");
        return found;
    }

    static void fail(const std::string& why) { throw std::runtime_error("orthornn: the network's JSON has " + why + "."); }

private:
    static void skip(const char*& at, const char* end)
    {
        while (at != end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
            ++at;
    }

    static bool take(const char*& at, const char* end, char wanted)
    {
        skip(at, end);
        if (at == end || *at != wanted)
            return false;
        ++at;
        return true;
    }

    static std::string read_string(const char*& at, const char* end)
    {
        std::string found;
        while (at != end && *at != '"') {
            if (*at == '\\' && ++at == end)
                break;
            found += *at++;
        }
        if (at == end)
            fail("a string without an end");
        ++at;
        return found;
    }

    void read(const char*& at, const char* end, int depth)
    {
        if (depth > 16)
            fail("too many brackets within each other");
        skip(at, end);
        if (at == end)
            fail("an early end");
        if (take(at, end, '{')) {
            kind = Kind::object;
            if (take(at, end, '}'))
                return;
            do {
                if (!take(at, end, '"'))
                    fail("a member without a name");
                const std::string name = read_string(at, end);
                if (!take(at, end, ':'))
                    fail("a name without a value");
                members[name].read(at, end, depth + 1);
            } while (take(at, end, ','));
            if (!take(at, end, '}'))
                fail("an object without an end");
        } else if (take(at, end, '[')) {
            kind = Kind::array;
            if (take(at, end, ']'))
                return;
            do {
                items.emplace_back();
                items.back().read(at, end, depth + 1);
            } while (take(at, end, ','));
            if (!take(at, end, ']'))
                fail("an array without an end");
        } else if (take(at, end, '"')) {
            kind = Kind::string;
            text = read_string(at, end);
        } else {
            read_word(at, end);
        }
    }

    void read_word(const char*& at, const char* end)
    {
        const char* const begin = at;
        while (at != end && *at != ',' && *at != ']' && *at != '}' && *at != ' ' && *at != '\n' && *at != '\r' && *at != '\t')
            ++at;
        const std::string word(begin, at);
        if (word == "null")
            return;
        if (word == "true" || word == "false") {
            kind = Kind::boolean;
            return;
        }
        kind = Kind::number;
        number = to_number(word);
    }

    // Without the locale: a comma for a point must not change what is read.
    static double to_number(const std::string& word)
    {
        std::size_t i = 0;
        const bool negative = i < word.size() && word[i] == '-';
        i += negative ? 1u : 0u;
        double mantissa = 0;
        int exponent = 0;
        const auto is_digit = [&] { return i < word.size() && word[i] >= '0' && word[i] <= '9'; };
        const auto some_digit = [&] {
            if (!is_digit())
                fail("something that is no number: " + word.substr(0, 20));
        };
        some_digit();
        for (; is_digit(); i++)
            mantissa = mantissa * 10 + (word[i] - '0');
        if (i < word.size() && word[i] == '.') {
            i++;
            some_digit();
            for (; is_digit(); i++, exponent--)
                mantissa = mantissa * 10 + (word[i] - '0');
        }
        if (i < word.size() && (word[i] == 'e' || word[i] == 'E')) {
            i++;
            const bool below = i < word.size() && word[i] == '-';
            i += i < word.size() && (word[i] == '-' || word[i] == '+') ? 1u : 0u;
            some_digit();
            int power = 0;
            for (; is_digit(); i++)
                power = power > 9999 ? power : power * 10 + (word[i] - '0');
            exponent += below ? -power : power;
        }
        if (i != word.size())
            fail("something that is no number: " + word.substr(0, 20));
        const double value = mantissa * std::pow(10.0, exponent);
        return negative ? -value : value;
    }
};

class Reader {
public:
    explicit Reader(const Json& layer) : layer_(layer) {}

    void expect(const char* name, const char* wanted)
    {
        const Json& found = member(name);
        if (found.kind != Json::Kind::string || found.text != wanted)
            Json::fail(std::string("another ") + name + ": this class is for " + wanted);
    }

    void expect(const char* name, int wanted)
    {
        const Json& found = member(name);
        if (found.kind != Json::Kind::number || found.number != wanted)
            Json::fail(std::string("another number of ") + name + ": this class is for " + std::to_string(wanted));
    }

    void vector(const char* name, float* to, int count) { numbers(name, member(name), to, count); }

    void matrix(const char* name, float* to, int rows, int columns)
    {
        const Json& found = member(name);
        if (found.kind != Json::Kind::array || found.items.size() != static_cast<std::size_t>(rows))
            Json::fail(std::string("not the right number of rows in ") + name);
        for (int i = 0; i < rows; i++)
            numbers(name, found.items[static_cast<std::size_t>(i)], to + i * columns, columns);
    }

    // A rate in Hz, or 0 if there is none.
    double rate(const char* name) const
    {
        const auto found = layer_.members.find(name);
        if (found == layer_.members.end())
            return 0;
        const Json& item = found->second;
        if (item.kind != Json::Kind::number || !(item.number > 0 && item.number <= 1e6))
            Json::fail(std::string("something that is no rate in ") + name);
        return item.number;
    }

private:
    const Json& member(const char* name) const
    {
        const auto found = layer_.members.find(name);
        if (found == layer_.members.end())
            Json::fail(std::string("no ") + name);
        return found->second;
    }

    static void numbers(const char* name, const Json& row, float* to, int count)
    {
        if (row.kind != Json::Kind::array || row.items.size() != static_cast<std::size_t>(count))
            Json::fail(std::string("not the right number of values in ") + name);
        for (int i = 0; i < count; i++) {
            const Json& item = row.items[static_cast<std::size_t>(i)];
            if (item.kind != Json::Kind::number || !(std::fabs(item.number) <= 3.4e38))
                Json::fail(std::string("something that is no float in ") + name);
            to[i] = static_cast<float>(item.number);
        }
    }

    const Json& layer_;
};

}  // namespace detail

// Reads the weights of a file that `orthornn export --audio` wrote. Not for the audio thread: it allocates, and throws
// std::runtime_error if the file is damaged or of a network of another kind or size. The network is as it was then.
template <class Net>
void from_json(Net& network, const std::string& text)
{
    const detail::Json file = detail::Json::parse(text);
    detail::Reader reader(file);
    const auto found = std::make_unique<Net>();  // a stack may be too small
    found->read(reader);
    network = *found;
}

// What to tell a user whose host runs at another rate than the sounds of the training: the network then computes another
// effect. Empty if the rates are equal, or if that of the training is unknown. Not for the audio thread: it allocates.
template <class Net>
std::string rate_warning(const Net& network, double host_rate)
{
    if (!(network.sample_rate > 0) || std::fabs(network.sample_rate - host_rate) < 0.5)
        return {};
    const auto hertz = [](double rate) { return std::to_string(std::llround(rate)) + " Hz"; };
    return "orthornn: the network was trained at " + hertz(network.sample_rate) + ", but the host runs at " +
           hertz(host_rate) + ". Resample its sound, or train on recordings at this rate.";
}

}  // namespace orthornn
