// Nanoseconds of processor time per sample: the network for audio of orthornn_audio.hpp next to LSTMs with one input and one
// output: one that is written as carefully (same loops, same tanh), and RTNeural's if ORTHORNN_RTNEURAL is defined.
//
//     g++ -std=gnu++17 -O3 -march=native -Isrc/orthornn/export/audio benchmarks/audio.cpp -o audio && ./audio
//
// The least of several interleaved rounds, so that other work on the machine counts little.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "orthornn_audio.hpp"

#ifdef ORTHORNN_RTNEURAL
#include <RTNeural/RTNeural.h>
#endif

namespace {

std::mt19937 generator(1);

void fill(float* to, int count, float size)
{
    std::uniform_real_distribution<float> draw(-size, size);
    for (int i = 0; i < count; i++)
        to[i] = draw(generator);
}

template <int N>
void tanh_all(float* z) noexcept
{
    constexpr int W = orthornn::detail::width_of(N);
    for (int i = 0; i < N; i += W) {
        auto lanes = orthornn::detail::Lanes<W>::load(z + i);
        lanes.template activate<orthornn::Tanh>(lanes);
        lanes.store(z + i);
    }
}

// An LSTM and a linear readout: weights by input, so that all loops run along the units; gates i, f, o, then g. Of the
// gates, the half in sigmoid(z) = 1/2 + tanh(z/2)/2 is in the weights.
template <int H>
struct Lstm {
    static constexpr int W = orthornn::detail::width_of(H);
    using L = orthornn::detail::Lanes<W>;
    alignas(64) float weights[(H + 1) * 4 * H], b[4 * H], Y[H], h[H] = {}, c[H] = {};
    float d = 0.0f;

    Lstm()
    {
        fill(weights, (H + 1) * 4 * H, 0.2f);
        fill(b, 4 * H, 0.2f);
        fill(Y, H, 0.2f);
    }

    float process(float x) noexcept
    {
        alignas(64) float z[4 * H], in[H + 1];
        for (int i = 0; i < 4 * H; i++)
            z[i] = b[i];
        for (int i = 0; i < H; i++)
            in[i] = h[i];
        in[H] = x;
        orthornn::detail::add_rows<H + 1, 4 * H>(weights, in, z);
        tanh_all<4 * H>(z);
        for (int i = 0; i < H; i += W) {
            // c = (1 + f)/2 c + (1 + i)/2 g, h = (1 + o)/2 tanh(c)
            const L before = L::load(c + i), g = L::load(z + 3 * H + i);
            L sum = before, now = L::zero(), out = L::zero();
            sum.add_product(L::load(z + H + i), before);
            sum.add(g);
            sum.add_product(L::load(z + i), g);
            now.add_product(sum, 0.5f);
            now.store(c + i);
            now.template activate<orthornn::Tanh>(now);
            L twice = now;
            twice.add_product(L::load(z + 2 * H + i), now);
            out.add_product(twice, 0.5f);
            out.store(h + i);
        }
        return d + orthornn::detail::dot<H>(Y, h);
    }
};

// A GRU and a linear readout: gates r, z, n; the candidate's recurrent part has its own bias, as in torch.
template <int H>
struct Gru {
    static constexpr int W = orthornn::detail::width_of(H), W2 = orthornn::detail::width_of(2 * H);
    using L = orthornn::detail::Lanes<W>;
    alignas(64) float weights[H * 3 * H], V[3 * H], b[3 * H], inner[3 * H], Y[H], h[H] = {};
    float d = 0.0f;

    Gru()
    {
        fill(weights, H * 3 * H, 0.2f);
        fill(V, 3 * H, 0.2f);
        fill(b, 3 * H, 0.2f);
        fill(inner, 3 * H, 0.2f);
        fill(Y, H, 0.2f);
    }

    float process(float x) noexcept
    {
        alignas(64) float z[3 * H], a[3 * H];
        for (int i = 0; i < 3 * H; i++) {
            z[i] = inner[i];
            a[i] = V[i] * x + b[i];
        }
        orthornn::detail::add_rows<H, 3 * H>(weights, h, z);
        for (int i = 0; i < 2 * H; i += W2) {
            auto sum = orthornn::detail::Lanes<W2>::load(z + i);
            sum.add(orthornn::detail::Lanes<W2>::load(a + i));
            sum.template activate<orthornn::Tanh>(sum);
            sum.store(z + i);
        }
        for (int i = 0; i < H; i += W) {
            // n = tanh(a + (1 + r)/2 z), h = n + (1 + u)/2 (h - n)
            const L inside = L::load(z + 2 * H + i);
            L half = inside, candidate = L::load(a + 2 * H + i), apart = L::load(h + i);
            half.add_product(L::load(z + i), inside);
            candidate.add_product(half, 0.5f);
            candidate.template activate<orthornn::Tanh>(candidate);
            apart.add_product(candidate, -1.0f);
            L moved = apart;
            moved.add_product(L::load(z + H + i), apart);
            candidate.add_product(moved, 0.5f);
            candidate.store(h + i);
        }
        return d + orthornn::detail::dot<H>(Y, h);
    }
};

template <int N, int M, class Phi>
std::unique_ptr<orthornn::Network<orthornn::Reflections<N, M>, Phi>> network()
{
    auto made = std::make_unique<orthornn::Network<orthornn::Reflections<N, M>, Phi>>();
    fill(made->transition.U, N * M, 0.1f);
    fill(made->transition.A, N * M, 0.1f);
    std::fill(made->transition.c, made->transition.c + N, 0.8f);
    std::fill(made->transition.s, made->transition.s + N, 0.3f);
    fill(made->V, N, 0.2f);
    fill(made->parameter, N, 0.01f);
    fill(made->Y, N, 0.2f);
    return made;
}

constexpr int frames = 20000, rounds = 40;
std::vector<float> input(frames), output(frames);

template <class Step>
double once(Step step)
{
    const orthornn::FlushDenormals flushing;
    timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (int t = 0; t < frames; t++)
        output[t] = step(input[t]);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    return (double(end.tv_sec - begin.tv_sec) * 1e9 + double(end.tv_nsec - begin.tv_nsec)) / frames;
}

struct Entry {
    const char* name;
    std::function<double()> round;
    double least;
};

template <class Net>
Entry entry(const char* name, std::unique_ptr<Net> made)
{
    std::shared_ptr<Net> net(std::move(made));
    return {name, [net] { return once([&](float x) { return net->process(x); }); }, 1e30};
}

#ifdef ORTHORNN_RTNEURAL
template <int H>
Entry rtneural(const char* name)
{
    using Model = RTNeural::ModelT<float, 1, 1, RTNeural::LSTMLayerT<float, 1, H>, RTNeural::DenseT<float, H, 1>>;
    auto net = std::make_shared<Model>();
    net->reset();
    const auto step = [net](float x) {
        alignas(32) float in[8] = {x};
        return net->forward(in);
    };
    return {name, [step] { return once(step); }, 1e30};
}
#endif

}  // namespace

int main()
{
    fill(input.data(), frames, 0.5f);
    std::vector<Entry> entries;
    entries.push_back(entry("orthornn n=32 m=4 modrelu", network<32, 4, orthornn::ModReLU>()));
    entries.push_back(entry("orthornn n=64 m=8 modrelu", network<64, 8, orthornn::ModReLU>()));
    entries.push_back(entry("orthornn n=64 m=8 tanh", network<64, 8, orthornn::Tanh>()));
    entries.push_back(entry("orthornn n=128 m=8 modrelu", network<128, 8, orthornn::ModReLU>()));
    entries.push_back(entry("LSTM 1x8", std::make_unique<Lstm<8>>()));
    entries.push_back(entry("LSTM 1x12", std::make_unique<Lstm<12>>()));
    entries.push_back(entry("LSTM 1x16", std::make_unique<Lstm<16>>()));
    entries.push_back(entry("LSTM 1x40", std::make_unique<Lstm<40>>()));
    entries.push_back(entry("GRU 1x8", std::make_unique<Gru<8>>()));
    entries.push_back(entry("GRU 1x14", std::make_unique<Gru<14>>()));
    entries.push_back(entry("GRU 1x16", std::make_unique<Gru<16>>()));
#ifdef ORTHORNN_RTNEURAL
    entries.push_back(rtneural<16>("RTNeural LSTM 1x16"));
    entries.push_back(rtneural<40>("RTNeural LSTM 1x40"));
#endif
    for (int round = 0; round < rounds; round++)
        for (Entry& each : entries)
            each.least = std::min(each.least, each.round());
    for (const Entry& each : entries)
        std::printf("%-28s %8.1f ns per sample\n", each.name, each.least);
}
