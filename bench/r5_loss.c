/* r5_loss.c - R5: the loss that a training in bfloat16 ends with over that of
 * the same training in float. The labels are a teacher's: a click is likelier
 * the higher a fixed score of the sample's ids and numbers; every sample is
 * seen once. The mean over several first weights, because trainings that differ
 * in one bit part after a while. */
#include <math.h>

#include "model.h"

enum { STEPS = 320, LAST = 40, SEEDS = 2, TEACHER_ROWS = 500 };

/* In [-1, 1), a function of x alone. */
static float opinion(uint64_t x)
{
    x = (x + 1) * 0x9E3779B97F4A7C15;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9;
    return (float)(int32_t)(x >> 40) * 0x1p-23f - 1;
}

static void label_one(bench *b, int batch, int i)
{
    int n = b->o.batch;
    float score = 0;

    for (int s = 0; s < N_ID; s++)
        score += opinion((uint64_t)b->id[batch][s * n + i]);
    for (int j = 0; j < N_DENSE; j++)
        score +=
            opinion(1u << 30 | (unsigned)j) * b->dense[batch][i * N_DENSE + j];
    b->label[batch][i] = (float)(next_random(&b->random) >> 40) * 0x1p-24f <
                         1 / (1 + expf(-score));
}

/* New numbers, ids and labels in place of the last ones. */
static void renew(bench *b, int batch)
{
    for (int i = 0; i < b->o.batch * N_ID; i++)
        b->id[batch][i] =
            (int64_t)(next_random(&b->random) % (uint64_t)b->o.rows);
    for (int i = 0; i < b->o.batch * N_DENSE; i++)
        b->dense[batch][i] = (float)(next_random(&b->random) >> 40) * 0x1p-24f;
    for (int i = 0; i < b->o.batch; i++)
        label_one(b, batch, i);
}

static double final_loss(int bf16, int seed)
{
    bench b = {.o = BENCH_DEFAULTS, .random = (uint64_t)seed};
    double sum = 0;

    b.o.bf16 = bf16;
    b.o.rows = TEACHER_ROWS;
    b.o.lr = 0.02;
    b.seed = (uint64_t)seed;
    open_bench(&b);
    for (int i = 0; i < STEPS; i++) {
        double loss;

        renew(&b, i % b.n_batch);
        loss = (double)step(&b);
        sum += i >= STEPS - LAST ? loss : 0;
    }
    close_bench(&b);
    return sum / LAST;
}

int main(void)
{
    double in_float = 0, in_bf16 = 0;

    for (int seed = 1; seed <= SEEDS; seed++) {
        in_float += final_loss(0, seed) / SEEDS;
        in_bf16 += final_loss(1, seed) / SEEDS;
    }
    printf("{\"id\":\"R5-loss\",\"ratio\":%.5f,\"floor\":1.005,\"goal\":1.001,"
           "\"ours\":%.5f,\"peer\":%.5f,\"unit\":\"final loss, at most\","
           "\"peer_name\":\"the same in float\"}\n",
           in_bf16 / in_float, in_bf16, in_float);
    return 0;
}
