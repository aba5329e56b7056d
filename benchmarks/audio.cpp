// Nanoseconds of processor time per sample: the network for audio of orthornn_audio.hpp next to LSTMs with one input and one
// output: one that is written as carefully (same loops, same tanh), and RTNeural's if ORTHORNN_RTNEURAL is defined.
//
//     g++ -std=gnu++17 -O3 -march=native -Isrc/orthornn/export/audio benchmarks/audio.cpp -o audio && ./audio
//
// The least of several interleaved rounds, so that other work on the machine counts little.
#include <algorithm>
#include <cstdio>
#include <ctime>
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

// An LSTM and a linear readout: weights by input, so that all loops run along the units; gates i, f, g, o.
template <int H>
struct Lstm {
    alignas(64) float W[(H + 1) * 4 * H], b[4 * H], Y[H], h[H] = {}, c[H] = {};
    float d = 0.0f;

    Lstm()
    {
        fill(W, (H + 1) * 4 * H, 0.2f);
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
        orthornn::detail::add_rows<H + 1, 4 * H>(W, in, z);
        for (int i = 0; i < 4 * H; i++) {
            const bool is_cell = i >= 2 * H && i < 3 * H;
            const float t = orthornn::fast_tanh(is_cell ? z[i] : 0.5f * z[i]);
            z[i] = is_cell ? t : 0.5f + 0.5f * t;
        }
        for (int i = 0; i < H; i++)
            c[i] = z[H + i] * c[i] + z[i] * z[2 * H + i];
        for (int i = 0; i < H; i++)
            h[i] = z[3 * H + i] * orthornn::fast_tanh(c[i]);
        float part[8] = {}, sum = d;
        for (int i = 0; i < H; i += 8)
            for (int k = 0; k < 8; k++)
                part[k] += Y[i + k] * h[i + k];
        for (float p : part)
            sum += p;
        return sum;
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

}  // namespace

int main()
{
    fill(input.data(), frames, 0.5f);
    auto a = network<64, 8, orthornn::ModReLU>();
    auto a_tanh = network<64, 8, orthornn::Tanh>();
    auto small = network<32, 4, orthornn::ModReLU>();
    auto wide = network<128, 8, orthornn::ModReLU>();
    auto l16 = std::make_unique<Lstm<16>>();
    auto l40 = std::make_unique<Lstm<40>>();
    const char* names[] = {"orthornn n=32 m=4 modrelu", "orthornn n=64 m=8 modrelu", "orthornn n=64 m=8 tanh", "orthornn n=128 m=8 modrelu",
                           "LSTM 1x16", "LSTM 1x40", "RTNeural LSTM 1x16", "RTNeural LSTM 1x40"};
    double best[8];
    std::fill(best, best + 8, 1e30);
#ifdef ORTHORNN_RTNEURAL
    auto r16 = std::make_unique<RTNeural::ModelT<float, 1, 1, RTNeural::LSTMLayerT<float, 1, 16>, RTNeural::DenseT<float, 16, 1>>>();
    auto r40 = std::make_unique<RTNeural::ModelT<float, 1, 1, RTNeural::LSTMLayerT<float, 1, 40>, RTNeural::DenseT<float, 40, 1>>>();
    r16->reset();
    r40->reset();
#endif
    for (int round = 0; round < rounds; round++) {
        best[0] = std::min(best[0], once([&](float x) { return small->process(x); }));
        best[1] = std::min(best[1], once([&](float x) { return a->process(x); }));
        best[2] = std::min(best[2], once([&](float x) { return a_tanh->process(x); }));
        best[3] = std::min(best[3], once([&](float x) { return wide->process(x); }));
        best[4] = std::min(best[4], once([&](float x) { return l16->process(x); }));
        best[5] = std::min(best[5], once([&](float x) { return l40->process(x); }));
#ifdef ORTHORNN_RTNEURAL
        best[6] = std::min(best[6], once([&](float x) { alignas(32) float in[8] = {x}; return r16->forward(in); }));
        best[7] = std::min(best[7], once([&](float x) { alignas(32) float in[8] = {x}; return r40->forward(in); }));
#endif
    }
    for (int i = 0; i < 8; i++)
        if (best[i] < 1e30)
            std::printf("%-28s %8.1f ns per sample\n", names[i], best[i]);
}
