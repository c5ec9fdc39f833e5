/* gpu_products.c - how each product of a training is computed on a GPU: one
 * line of JSON for each shape, type and epilogue with the way that was chosen
 * (runtime/device/cuda/gemm.cu), its time and its error, and a last one with
 * how many took each way. Fails, with the product's line on stderr, if one is
 * wrong, leaves an element unwritten, or hides a NaN.
 *
 *   gpu_products [--device gpu:0] [--rows 1,512,8192]
 *
 * Operands are random numbers in (-1, 1), one set for each product; the error
 * is the greatest difference from sums in double over all elements of three
 * rows, over sqrt(k). */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "common.h"

#include "runtime/device/gpu.h"
#include "runtime/simd/half_float.h"

enum { RUNS = 20, WAYS = 4, MOST_ROWS = 16 };

static const char *const ways[WAYS] = {"fused", "biased", "filled", "own"};

/* Layers of the benchmarks, and what has another alignment. */
static const int64_t widths[] = {1, 2, 8, 100, 400};
static const int64_t depths[] = {13, 32, 400, 429, 432};

/* y = x . w, dw = x' . dy, dx = dy . w' */
typedef enum part { FORWARD, DW, DX, N_PART } part;

static const char *const part_name[N_PART] = {"forward", "dw", "dx"};
static const char *const epilogue_name[] = {"plain", "bias", "bias_relu",
                                            "bias_gradient"};

/* Tolerances, over sqrt(k): a factor is rounded to 2^-11 (TF32, float16) or
 * 2^-9 (bfloat16). */
typedef struct number_type {
    const char *name;
    fleet_dtype dtype;
    size_t size;
    double tolerance;
} number_type;

static const number_type types[] = {{"float32", FLEET_FLOAT32, 4, 2e-3},
                                    {"bfloat16", FLEET_BFLOAT16, 2, 8e-3},
                                    {"float16", FLEET_FLOAT16, 2, 2e-3}};

typedef struct product {
    fl_gpu *g;
    const number_type *type;
    fl_gemm_spec spec;
    part part;
    fl_gemm *gemm;
    float *a, *b, *bias; /* as they were rounded */
    char *host;          /* room for any of the four */
    fl_gemm_data on;
    double error, us;
} product;

static const char *where = "gpu:0";
static long taken[WAYS], wrong;

static void must(fleet_status status, const char *what)
{
    if (status == FLEET_OK)
        return;
    fprintf(stderr, "gpu_products: %s: %s\n", what, fleet_last_error());
    exit(1);
}

static void *room(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);

    if (!p) {
        fprintf(stderr, "gpu_products: out of memory\n");
        exit(1);
    }
    return p;
}

/* --- numbers of 16 bits --------------------------------------------------- */

static uint16_t narrow(float x, fleet_dtype dtype)
{
    return dtype == FLEET_FLOAT16 ? fl_to_f16(x) : fl_to_bf16(x);
}

static float widened(uint16_t x, fleet_dtype dtype)
{
    return dtype == FLEET_FLOAT16 ? fl_from_f16(x) : fl_from_bf16(x);
}

static void pack(char *to, float *x, int64_t n, const number_type *t)
{
    if (t->size == sizeof(float)) {
        memcpy(to, x, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)(void *)to)[i] = narrow(x[i], t->dtype);
        x[i] = widened(((uint16_t *)(void *)to)[i], t->dtype);
    }
}

static double at(const char *from, int64_t i, const number_type *t)
{
    float x;

    if (t->size != sizeof x)
        return (double)widened(((const uint16_t *)(const void *)from)[i],
                               t->dtype);
    memcpy(&x, from + (size_t)i * sizeof x, sizeof x);
    return (double)x;
}

/* --- a product ------------------------------------------------------------ */

static int64_t count_a(const product *p)
{
    return p->spec.m * p->spec.k;
}
static int64_t count_b(const product *p)
{
    return p->spec.k * p->spec.n;
}
static int64_t count_c(const product *p)
{
    return p->spec.m * p->spec.n;
}

static uint64_t random_state = 1;

static float *some_numbers(int64_t n)
{
    float *x = room((size_t)n * sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(next_random(&random_state) >> 40) * 0x1p-23f - 1.0f;
    return x;
}

static void *send(product *p, float *x, int64_t n)
{
    size_t bytes = (size_t)n * p->type->size;
    void *to;

    pack(p->host, x, n, p->type);
    must(p->g->m->alloc(p->g->d, p->g->queue, bytes, &to), "memory");
    must(p->g->m->copy(p->g->d, p->g->queue, to, p->host, bytes, FL_TO_DEVICE),
         "copy");
    return to;
}

/* What a layer of n units on k numbers has for m samples. */
static fl_gemm_spec spec_of(part what, int64_t m, int64_t n, int64_t k,
                            fl_epilogue epilogue, const number_type *t)
{
    fl_gemm_spec s = {.m = m, .n = n, .k = k, .epilogue = epilogue};

    if (what == DW)
        s = (fl_gemm_spec){.m = k, .n = n, .k = m, .ta = true};
    if (what == DX)
        s = (fl_gemm_spec){.m = m, .n = k, .k = n, .tb = true};
    s.lda = s.ta ? s.m : s.k;
    s.ldb = s.tb ? s.k : s.n;
    s.ldc = s.n;
    s.in = s.out = t->dtype;
    return s;
}

static void open_product(product *p)
{
    int64_t a = count_a(p), b = count_b(p), c = count_c(p), most;
    void *to;

    most = a > b ? a : b;
    p->host = room((size_t)(c > most ? c : most) * sizeof(float));
    p->a = some_numbers(a);
    p->b = some_numbers(b);
    p->bias = some_numbers(p->spec.n);
    p->on.a = send(p, p->a, a);
    p->on.b = send(p, p->b, b);
    p->on.bias = send(p, p->bias, p->spec.n);
    must(p->g->m->alloc(p->g->d, p->g->queue, (size_t)c * p->type->size, &to),
         "memory");
    p->on.c = to;
    must(p->g->m->gemm_create(p->g->d, p->g->queue, &p->spec, &p->gemm),
         "a product");
}

static void give_back(product *p, const void *on)
{
    p->g->m->free(p->g->d, p->g->queue, (void *)(uintptr_t)on);
}

static void close_product(product *p)
{
    p->g->m->gemm_destroy(p->g->d, p->gemm);
    give_back(p, p->on.a);
    give_back(p, p->on.b);
    give_back(p, p->on.bias);
    give_back(p, p->on.c);
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->host);
}

/* Result in p->host; what is not written is a NaN there. */
static void run_once(product *p)
{
    size_t bytes = (size_t)count_c(p) * p->type->size;

    must(p->g->m->fill(p->g->d, p->g->queue, p->on.c, 0xff, bytes), "fill");
    must(p->g->m->gemm_run(p->g->d, p->g->queue, p->gemm, &p->on), "product");
    must(p->g->m->copy(p->g->d, p->g->queue, p->host, p->on.c, bytes,
                       FL_TO_HOST),
         "copy");
    must(p->g->m->stream_wait(p->g->d, p->g->queue, p->g->deadline_ms), "wait");
}

static double want(const product *p, int64_t row, int64_t col)
{
    const fl_gemm_spec *s = &p->spec;
    double sum = 0;

    for (int64_t i = 0; i < s->k; i++)
        sum += (double)p->a[s->ta ? i * s->lda + row : row * s->lda + i] *
               (double)p->b[s->tb ? col * s->ldb + i : i * s->ldb + col];
    if (s->epilogue == FL_GEMM_BIAS || s->epilogue == FL_GEMM_BIAS_RELU)
        sum += (double)p->bias[col];
    return s->epilogue == FL_GEMM_BIAS_RELU && sum < 0 ? 0 : sum;
}

/* The sums of b's rows, which come with a product. */
static bool check_bias_gradient(product *p)
{
    const fl_gemm_spec *s = &p->spec;
    float *got = (float *)(void *)p->host;
    bool close = true;

    if (s->epilogue != FL_GEMM_BIAS_GRADIENT)
        return true;
    must(p->g->m->copy(p->g->d, p->g->queue, got, p->on.bias,
                       (size_t)s->n * sizeof *got, FL_TO_HOST),
         "copy");
    must(p->g->m->stream_wait(p->g->d, p->g->queue, p->g->deadline_ms), "wait");
    for (int64_t j = 0; j < s->n; j++) {
        double sum = 0;

        for (int64_t i = 0; i < s->k; i++)
            sum += (double)p->b[i * s->ldb + j];
        close &= fabs((double)got[j] - sum) / sqrt((double)s->k) <=
                 p->type->tolerance;
    }
    return close;
}

static bool check_values(product *p)
{
    const int64_t rows[] = {0, p->spec.m / 2, p->spec.m - 1};

    for (int64_t i = 0; i < count_c(p); i++)
        if (isnan(at(p->host, i, p->type)))
            return false;
    for (int r = 0; r < 3; r++)
        for (int64_t col = 0; col < p->spec.n; col++) {
            double got = at(p->host, rows[r] * p->spec.n + col, p->type);
            double off = fabs(got - want(p, rows[r], col));

            off /= sqrt((double)p->spec.k);
            p->error = off > p->error ? off : p->error;
        }
    return p->error <= p->type->tolerance;
}

/* A NaN in the middle row's first factor is in all of that row, and in no other
 * one. */
static bool keeps_nan(product *p)
{
    const fl_gemm_spec *s = &p->spec;
    int64_t row = s->m / 2;
    const void *before = p->on.a;
    bool kept = true;

    p->a[s->ta ? row : row * s->lda] = NAN;
    p->on.a = send(p, p->a, count_a(p));
    run_once(p);
    for (int64_t i = 0; i < count_c(p); i++)
        kept &= isnan(at(p->host, i, p->type)) == (i / s->n == row);
    give_back(p, before);
    return kept;
}

static void time_product(product *p)
{
    const fl_device_class *m = p->g->m;
    fl_event *from, *to;
    float ms;

    must(m->event_create(p->g->d, true, &from), "event");
    must(m->event_create(p->g->d, true, &to), "event");
    must(m->event_record(p->g->d, from, p->g->queue), "event");
    for (int i = 0; i < RUNS; i++)
        must(m->gemm_run(p->g->d, p->g->queue, p->gemm, &p->on), "product");
    must(m->event_record(p->g->d, to, p->g->queue), "event");
    must(m->event_wait(p->g->d, to, p->g->deadline_ms), "event");
    must(m->event_elapsed(p->g->d, from, to, &ms), "event");
    p->us = (double)ms * 1e3 / RUNS;
    m->event_destroy(p->g->d, from);
    m->event_destroy(p->g->d, to);
}

static void tell(FILE *to, const product *p, const char *fault)
{
    const fl_gemm_spec *s = &p->spec;

    fprintf(
        to,
        "{\"part\":\"%s\",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"type\":\"%s\","
        "\"epilogue\":\"%s\",\"way\":\"%s\",\"us\":%.2f,\"error\":%.2g%s%s%s"
        "}\n",
        part_name[p->part], (long long)s->m, (long long)s->n, (long long)s->k,
        p->type->name, epilogue_name[s->epilogue], p->g->m->gemm_way(p->gemm),
        p->us, p->error, fault ? ",\"fault\":\"" : "", fault ? fault : "",
        fault ? "\"" : "");
}

static void try_product(fl_gpu *g, const number_type *t, part what,
                        fl_gemm_spec spec)
{
    product p = {.g = g, .type = t, .spec = spec, .part = what};
    const char *fault = NULL;

    open_product(&p);
    run_once(&p);
    time_product(&p);
    if (!check_values(&p) || !check_bias_gradient(&p))
        fault = "wrong";
    else if (!keeps_nan(&p))
        fault = "hides a NaN, or has one elsewhere";
    tell(stdout, &p, fault);
    if (fault)
        tell(stderr, &p, fault);
    wrong += fault != NULL;
    for (int i = 0; i < WAYS; i++)
        taken[i] += strcmp(ways[i], g->m->gemm_way(p.gemm)) == 0;
    close_product(&p);
}

static void try_layer(fl_gpu *g, int64_t m, int64_t n, int64_t k)
{
    for (int t = 0; t < 3; t++) {
        for (int e = FL_GEMM_PLAIN; e <= FL_GEMM_BIAS_RELU; e++)
            try_product(g, &types[t], FORWARD,
                        spec_of(FORWARD, m, n, k, (fl_epilogue)e, &types[t]));
        for (int what = DW; what <= DX; what++)
            try_product(g, &types[t], (part)what,
                        spec_of((part)what, m, n, k, FL_GEMM_PLAIN, &types[t]));
    }
    try_product(g, &types[0], DW,
                spec_of(DW, m, n, k, FL_GEMM_BIAS_GRADIENT, &types[0]));
}

static int read_rows(const char *text, int64_t rows[MOST_ROWS])
{
    int n = 0;

    while (*text && n < MOST_ROWS) {
        rows[n] = strtoll(text, (char **)(uintptr_t)&text, 10);
        if (rows[n++] < 1 || (*text && *text++ != ',')) {
            fprintf(stderr, "gpu_products: --rows: numbers above 0 with "
                            "commas between them\n");
            exit(2);
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    int64_t rows[MOST_ROWS];
    int n = read_rows("1,512,8192", rows);
    fleet_place place;
    fl_gpu *g;

    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--device"))
            where = argv[i + 1];
        else if (!strcmp(argv[i], "--rows"))
            n = read_rows(argv[i + 1], rows);
    must(fleet_place_parse(where, &place), where);
    if (place < FLEET_GPU(0)) {
        fprintf(stderr, "gpu_products: %s is no GPU\n", where);
        return 2;
    }
    must(fl_gpu_open(place - FLEET_GPU(0), &(fl_device_options){0}, &g), where);
    fl_gpu_lock(g);
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (size_t j = 0; j < sizeof depths / sizeof *depths; j++)
                try_layer(g, rows[r], widths[i], depths[j]);
    printf("{\"gpu\":\"%s\"", g->d->name);
    for (int i = 0; i < WAYS; i++)
        printf(",\"%s\":%ld", ways[i], taken[i]);
    printf(",\"wrong\":%ld}\n", wrong);
    fl_gpu_unlock(g);
    fl_gpu_close(g);
    return wrong > 0;
}
