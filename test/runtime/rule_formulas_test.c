/* rule_formulas_test.c - Adagrad by the public calls, of a parameter and of
 * rows, on the CPU and on a GPU, against its formula in double, where epsilon
 * stands beside the root:
 *
 *     s = s + g g,  w = w - rate g / (sqrt(s) + epsilon)
 */
#define SUITE rule_formulas
#include "gpu_kit.h"
#include "test.h"

#include <math.h>

enum { ROWS = 4, STEPS = 12 };

/* A batch, and how often each of its ids is there. */
static const int64_t id_of[ROWS] = {7, 1LL << 40, 7, 12};
static const double count_of[ROWS] = {2, 1, 2, 1};

typedef struct lesson {
    const char *device; /* NULL: the CPU */
    const fleet_adagrad_options *options;
    double epsilon, first_sum; /* what they say */
    float scale;               /* of the loss */
} lesson;

typedef struct net {
    fleet *f;
    fleet_program *p;
    fleet_var *row, *product;
    fleet_executor *e;
} net;

/* loss = scale mean(x w + row of id) */
static void open_net(net *n, const lesson *s)
{
    const fleet_param_attr attr = {.name = "w"};
    fleet_var *x, *id, *w, *loss;

    n->f = kit_handle(&(kit_options){0});
    n->p = fleet_program_create(n->f);
    kit_place(n->p, &(kit_options){.device = s->device});
    x = kit_data(n->p, "x", 1);
    id = kit_data_ids(n->p, "id", 1);
    w = fleet_parameter(n->p, (int64_t[]){1}, 1, &attr);
    n->product = fleet_mul(n->p, x, w);
    n->row = fleet_sparse_embedding(n->p, id, 1, NULL);
    loss = fleet_mean(n->p, fleet_add(n->p, n->product, n->row));
    loss = fleet_scale(n->p, loss, s->scale, 0);
    CHECK_OK(fleet_minimize(fleet_adagrad(n->f, 0.1f, s->options), loss));
    n->e = fleet_executor_create(n->p, NULL);
    CHECK(n->e != NULL);
}

/* What a step begins with: w, and each row's weight. */
static void step(const net *n, float x, float w[1 + ROWS])
{
    float fed[ROWS] = {x, x, x, x}, product[ROWS];
    int64_t dims[] = {ROWS, 1};
    const fleet_feed feed[] = {{"x", FLEET_FLOAT32, fed, dims, 2, NULL},
                               {"id", FLEET_INT64, id_of, dims, 2, NULL}};
    fleet_fetch fetch[] = {
        {.var = n->product, .data = product, .size = sizeof product},
        {.var = n->row, .data = w + 1, .size = ROWS * sizeof *w}};

    CHECK_OK(fleet_executor_run(n->e, feed, 2, fetch, 2));
    w[0] = product[0] / x;
}

/* Powers of two, so that a product gives its weight away. */
static float x_at(int t)
{
    return ldexpf(t % 3 == 1 ? -1.0f : 1.0f, t % 4 - 2);
}

static void check_weights(const lesson *s, int t, const float got[1 + ROWS],
                          const double want[1 + ROWS])
{
    for (int i = 0; i <= ROWS; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-6))
            test_fail(__FILE__, __LINE__,
                      "epsilon %g, %s, weight %d after %d steps: %.9g, not "
                      "%.9g",
                      s->epsilon, s->device ? s->device : "cpu", i, t,
                      (double)got[i], want[i]);
}

static void check_adagrad(const lesson *s)
{
    double w[1 + ROWS], sum[1 + ROWS];
    float got[1 + ROWS];
    net n;

    open_net(&n, s);
    for (int t = 0; t < STEPS; t++) {
        step(&n, x_at(t), got);
        for (int i = 0; t == 0 && i <= ROWS; i++) {
            w[i] = (double)got[i];
            sum[i] = s->first_sum;
        }
        check_weights(s, t, got, w);
        for (int i = 0; i <= ROWS; i++) {
            double g = (i ? count_of[i - 1] / ROWS : (double)x_at(t)) *
                       (double)s->scale;

            sum[i] += g * g;
            w[i] -= (double)0.1f * g / (sqrt(sum[i]) + s->epsilon);
        }
    }
    fleet_executor_destroy(n.e);
    fleet_destroy(n.f);
}

/* Numbers of its own, and gradients as small as the default epsilon. */
static void check_on(const char *device)
{
    const fleet_adagrad_options both = {0.5f, 0.25f}, one = {.epsilon = 0.03f};

    check_adagrad(&(lesson){device, &both, 0.5, 0.25, 1});
    check_adagrad(&(lesson){device, &one, (double)0.03f, 0, 0.125f});
    check_adagrad(&(lesson){device, NULL, 1e-6, 0, 4e-6f});
}

TEST(adagrad_adds_epsilon_to_the_root)
{
    check_on(NULL);
}

TEST(adagrad_on_a_gpu_adds_epsilon_to_the_root)
{
    gpu_kit_open();
    check_on("gpu:0");
    gpu_kit_close();
}
