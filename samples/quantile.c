/* quantile.c - a loss of its own: a model that predicts what nine of ten values
 * stay below, by quantile regression (Koenker, Bassett 1978).
 *
 *   bin/quantile [QUANTILE]
 *
 * The loss is an operator that this program registers (fleet/custom_op.h). The
 * data are made up: y is sin(3 x) plus noise that grows with x. The program
 * prints how many of fresh values are below the prediction, and fails if they
 * are 5 in 100 more or less than QUANTILE, 0.9. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#define TRY(call)                                                              \
    do {                                                                       \
        fleet_status status_ = (call);                                         \
        if (status_ != FLEET_OK)                                               \
            return status_;                                                    \
    } while (0)

enum { BATCH = 256, STEPS = 4000, FRESH = 20000 };

/* --- the operator: prediction [B, 1], y [B, 1] -> loss [B, 1] ------------- */

static fleet_status pinball_shape(fleet_custom_shape *s)
{
    double q = fleet_custom_attr_float(s->attrs, "quantile");

    if (!(q > 0 && q < 1))
        return fleet_custom_fail(FLEET_EINVAL, "quantile is not in (0, 1)");
    if (s->in[0].n_dim != 2 || s->in[1].n_dim != 2 || s->in[0].dims[1] != 1 ||
        s->in[1].dims[1] != 1)
        return fleet_custom_fail(FLEET_ESHAPE,
                                 "prediction and y have to be [-1,1]");
    return FLEET_OK; /* the loss has the shape of the first input */
}

/* Too low costs q for each unit, too high 1 - q. */
static fleet_status pinball_forward(const fleet_custom_call *c)
{
    float q = (float)fleet_custom_attr_float(c->attrs, "quantile");
    const float *prediction = c->in[0].data, *y = c->in[1].data;
    float *loss = c->out[0].data;

    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        float below = y[i] - prediction[i];

        loss[i] = below > 0 ? q * below : (q - 1) * below;
    }
    return FLEET_OK;
}

static fleet_status pinball_backward(const fleet_custom_call *c)
{
    float q = (float)fleet_custom_attr_float(c->attrs, "quantile");
    const float *prediction = c->in[0].data, *y = c->in[1].data;
    const float *g = c->out_grad[0].data;
    float *of_prediction = c->in_grad[0].data, *of_y = c->in_grad[1].data;

    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        float slope = y[i] > prediction[i] ? q : q - 1;

        if (of_prediction) /* NULL: this gradient is not wanted */
            of_prediction[i] = -slope * g[i];
        if (of_y)
            of_y[i] = slope * g[i];
    }
    return FLEET_OK;
}

static const fleet_custom_op pinball = {.name = "pinball",
                                        .n_in = 2,
                                        .attrs = "quantile:f",
                                        .shape = pinball_shape,
                                        .forward = pinball_forward,
                                        .backward = pinball_backward};

/* Does backward fit forward? For a new operator, once. */
static fleet_status check_gradient(const fleet_custom_attr *quantile)
{
    float prediction[] = {0.5f, -1.0f, 2.0f}, y[] = {1.0f, -2.0f, 1.0f};
    const fleet_custom_tensor in[] = {{FLEET_FLOAT32, 2, {-3, 1}, prediction},
                                      {FLEET_FLOAT32, 2, {-3, 1}, y}};

    return fleet_check_gradient("pinball", in, 2, quantile, 1, 0);
}

/* --- the training --------------------------------------------------------- */

typedef struct training {
    fleet *fleet;
    fleet_program *program;
    fleet_var *prediction, *loss;
    fleet_executor *trainer, *tester;
    float x[FRESH], y[FRESH], predicted[FRESH];
} training;

static void make_data(training *t, int n)
{
    for (int i = 0; i < n; i++) {
        float noise = -6.0f; /* of twelve numbers: nearly normal */

        for (int k = 0; k < 12; k++)
            noise += (float)rand() / (float)RAND_MAX;
        t->x[i] = 2.0f * (float)rand() / (float)RAND_MAX - 1.0f;
        t->y[i] = sinf(3.0f * t->x[i]) + (0.3f + 0.2f * t->x[i]) * noise;
    }
}

static fleet_status build(training *t, const fleet_custom_attr *quantile)
{
    fleet_program *p = t->program = fleet_program_create(t->fleet);
    fleet_fc_options tanh16 = {.activation = FLEET_TANH};
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    fleet_var *y = fleet_data(p, "y", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    fleet_var *h = fleet_fc(p, fleet_fc(p, x, 16, &tanh16), 16, &tanh16);

    t->prediction = fleet_fc(p, h, 1, NULL);
    fleet_var *in[] = {t->prediction, y};
    t->loss =
        fleet_mean(p, fleet_custom(p, "pinball", in, 2, quantile, 1, NULL));
    return fleet_minimize(fleet_adam(t->fleet, 0.001f, NULL), t->loss);
}

static fleet_status run(training *t, const fleet_custom_attr *quantile)
{
    int64_t rows[] = {BATCH, 1};
    fleet_feed feed[] = {{"x", FLEET_FLOAT32, t->x, rows, 2, NULL},
                         {"y", FLEET_FLOAT32, t->y, rows, 2, NULL}};
    fleet_fetch fetch = {.data = t->predicted, .size = sizeof t->predicted};

    TRY(fleet_custom_op_register(&pinball));
    TRY(check_gradient(quantile));
    TRY(fleet_init(&t->fleet, NULL));
    TRY(build(t, quantile));
    t->trainer = fleet_executor_create(t->program, NULL);
    t->tester = fleet_executor_create(t->program,
                                      &(fleet_executor_options){.for_test = 1});
    if (!t->trainer || !t->tester)
        return fleet_last_status();
    for (int step = 0; step < STEPS; step++) {
        make_data(t, BATCH);
        TRY(fleet_executor_run(t->trainer, feed, 2, NULL, 0));
    }
    make_data(t, FRESH);
    rows[0] = FRESH;
    fetch.var = t->prediction;
    return fleet_executor_run(t->tester, feed, 2, &fetch, 1);
}

/* The share of fresh values below their prediction. */
static double share_below(const training *t)
{
    int n = 0;

    for (int i = 0; i < FRESH; i++)
        n += t->y[i] < t->predicted[i];
    return (double)n / FRESH;
}

int main(int argc, char **argv)
{
    static training t;
    fleet_custom_attr quantile = {.name = "quantile", .f = 0.9};
    double share = 0;

    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--help") == 0))
        return fputs("usage: quantile [QUANTILE]\n",
                     argc == 2 ? stdout : stderr) < 0 ||
               argc > 2;
    if (argc == 2)
        quantile.f = atof(argv[1]);
    fleet_status status = run(&t, &quantile);

    if (status == FLEET_OK)
        printf("{\"quantile\": %g, \"below\": %.4f}\n", quantile.f,
               share = share_below(&t));
    else
        fprintf(stderr, "quantile: %s\n", fleet_last_error());
    fleet_executor_destroy(t.trainer);
    fleet_executor_destroy(t.tester);
    fleet_destroy(t.fleet);
    return status != FLEET_OK || fabs(share - quantile.f) > 0.05;
}
