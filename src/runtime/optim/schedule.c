/* schedule.c - schedules of the learning rate: the list of their numbers, made
 * of schedules.def, and their formulas, which fleet/schedule.h has. */
#include "runtime/optim/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static const char *const names[FL_N_SCHEDULE] = {
#define FL_SCHEDULE(KIND, name) [FLEET_SCHEDULE_##KIND] = #name,
#include "runtime/optim/schedules.def"
};

#define NUMBER(KIND, TYPE, field, ...)                                         \
    {                                                                          \
        KIND, TYPE, #field, offsetof(fleet_schedule, field), __VA_ARGS__       \
    }

static const fl_schedule_number numbers[] = {
#define FL_AT_INT(KIND, field, ...)                                            \
    NUMBER(FLEET_SCHEDULE_##KIND, FL_SCHEDULE_INT, field, __VA_ARGS__),
#define FL_AT_FLOAT(KIND, field, ...)                                          \
    NUMBER(FLEET_SCHEDULE_##KIND, FL_SCHEDULE_FLOAT, field, __VA_ARGS__),
#define FL_AT_FLAG(KIND, field)                                                \
    NUMBER(FLEET_SCHEDULE_##KIND, FL_SCHEDULE_FLAG, field, 0, 0, 1),
#include "runtime/optim/schedules.def"
    NUMBER(FL_EVERY_SCHEDULE, FL_SCHEDULE_INT, warmup_steps, 0, 0, 0x1p53 - 1),
    NUMBER(FL_EVERY_SCHEDULE, FL_SCHEDULE_FLOAT, warmup_start, 1.0f / 3.0f,
           1e-9, 1),
};
enum { N_NUMBER = sizeof numbers / sizeof *numbers };

const char *fl_schedule_name(fleet_schedule_kind kind)
{
    return names[kind];
}

static bool has_number(fleet_schedule_kind kind, const fl_schedule_number *n)
{
    return n->kind == (int)kind || n->kind == FL_EVERY_SCHEDULE;
}

const fl_schedule_number *fl_schedule_number_of(fleet_schedule_kind kind, int i)
{
    for (int k = 0; k < N_NUMBER; k++)
        if (has_number(kind, &numbers[k]) && i-- == 0)
            return &numbers[k];
    return NULL;
}

double fl_schedule_get(const fleet_schedule *s, const fl_schedule_number *n)
{
    const char *at = (const char *)s + n->at;
    int64_t whole;
    float x;
    int flag;

    switch (n->type) {
    case FL_SCHEDULE_INT:
        memcpy(&whole, at, sizeof whole);
        return (double)whole;
    case FL_SCHEDULE_FLOAT:
        memcpy(&x, at, sizeof x);
        return (double)x;
    default:
        memcpy(&flag, at, sizeof flag);
        return flag != 0;
    }
}

void fl_schedule_put(fleet_schedule *s, const fl_schedule_number *n, double x)
{
    char *at = (char *)s + n->at;

    if (n->type == FL_SCHEDULE_INT)
        memcpy(at, &(int64_t){(int64_t)x}, sizeof(int64_t));
    else if (n->type == FL_SCHEDULE_FLOAT)
        memcpy(at, &(float){(float)x}, sizeof(float));
    else
        memcpy(at, &(int){x != 0}, sizeof(int));
}

bool fl_schedule_has_boundaries(fleet_schedule_kind kind)
{
    return kind == FLEET_SCHEDULE_PIECEWISE ||
           kind == FLEET_SCHEDULE_MULTI_STEP;
}

bool fl_schedule_has_values(fleet_schedule_kind kind)
{
    return kind == FLEET_SCHEDULE_PIECEWISE;
}

/* --- checked -------------------------------------------------------------- */

static fleet_status out_of_range(const char *name, const char *what, double got)
{
    return fl_fail(FLEET_EINVAL, "%s: %s: %g is out of range", name, what, got);
}

/* Of a float, as the float that is next to the bound. */
static double bound_of(const fl_schedule_number *n, double bound)
{
    return n->type == FL_SCHEDULE_FLOAT ? (double)(float)bound : bound;
}

/* 0 is what a number is otherwise. */
static fleet_status complete_numbers(fleet_schedule *s)
{
    const fl_schedule_number *n;

    if (s->warmup_steps == 0 && s->warmup_start != 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: warmup_start %g: there are no warmup_steps",
                       names[s->kind], (double)s->warmup_start);
    for (int i = 0; (n = fl_schedule_number_of(s->kind, i)) != NULL; i++) {
        double x = fl_schedule_get(s, n);

        if (x == 0)
            x = n->otherwise;
        if (!(x >= bound_of(n, n->low) && x <= bound_of(n, n->high)))
            return out_of_range(names[s->kind], n->name, x);
        fl_schedule_put(s, n, x);
    }
    if (s->warmup_steps == 0)
        s->warmup_start = 0;
    return FLEET_OK;
}

/* What is said and would do nothing. */
static fleet_status check_others(const fleet_schedule *s)
{
    for (int k = 0; k < N_NUMBER; k++) {
        bool own = false;

        for (int i = 0; i < N_NUMBER; i++)
            own |= has_number(s->kind, &numbers[i]) &&
                   numbers[i].at == numbers[k].at;
        if (!own && fl_schedule_get(s, &numbers[k]) != 0)
            return fl_fail(FLEET_EINVAL, "%s: %s: it has none", names[s->kind],
                           numbers[k].name);
    }
    if (!fl_schedule_has_boundaries(s->kind) && (s->boundaries || s->n != 0))
        return fl_fail(FLEET_EINVAL, "%s: boundaries: it has none",
                       names[s->kind]);
    if (!fl_schedule_has_values(s->kind) && s->values)
        return fl_fail(FLEET_EINVAL, "%s: values: it has none", names[s->kind]);
    return FLEET_OK;
}

static fleet_status check_arrays(const fleet_schedule *s)
{
    const char *name = names[s->kind];
    const bool has_values = fl_schedule_has_values(s->kind);

    if (!fl_schedule_has_boundaries(s->kind))
        return FLEET_OK;
    if (!s->boundaries || (has_values && !s->values) || s->n < 1)
        return fl_fail(FLEET_EINVAL, "%s: no boundaries%s", name,
                       has_values ? ", or no values" : "");
    for (int i = 0; has_values && i <= s->n; i++)
        if (!(s->values[i] > 0) || !isfinite(s->values[i]))
            return out_of_range(name, "a learning rate", (double)s->values[i]);
    for (int i = 0; i < s->n; i++)
        if (s->boundaries[i] <= (i ? s->boundaries[i - 1] : 0))
            return fl_fail(FLEET_EINVAL, "%s: boundary %d does not grow", name,
                           i);
    return FLEET_OK;
}

static fleet_status copy_arrays(const fleet_schedule *from, fl_schedule *to)
{
    const size_t n = (size_t)from->n;

    if (!fl_schedule_has_boundaries(from->kind))
        return FLEET_OK;
    to->boundary = fl_alloc_array(n, sizeof *to->boundary);
    if (!to->boundary)
        return FLEET_ENOMEM;
    memcpy(to->boundary, from->boundaries, n * sizeof *to->boundary);
    if (!fl_schedule_has_values(from->kind))
        return FLEET_OK;
    to->value = fl_alloc_array(n + 1, sizeof *to->value);
    if (!to->value)
        return FLEET_ENOMEM;
    memcpy(to->value, from->values, (n + 1) * sizeof *to->value);
    return FLEET_OK;
}

fleet_status fl_schedule_make(const fleet_schedule *from, fl_schedule *to)
{
    fleet_status status;

    *to = (fl_schedule){0};
    if (!from)
        return FLEET_OK;
    if ((int)from->kind < 0 || (int)from->kind >= FL_N_SCHEDULE)
        return fl_fail(FLEET_EINVAL, "schedule: there is no kind %d",
                       (int)from->kind);
    to->is = *from;
    FL_TRY(complete_numbers(&to->is));
    FL_TRY(check_others(&to->is));
    FL_TRY(check_arrays(from));
    status = copy_arrays(from, to);
    to->is.boundaries = to->boundary;
    to->is.values = to->value;
    if (status != FLEET_OK)
        fl_schedule_done(to);
    return status;
}

void fl_schedule_done(fl_schedule *s)
{
    fl_free(s->boundary);
    fl_free(s->value);
    *s = (fl_schedule){0};
}

/* --- the formulas --------------------------------------------------------- */

static int pieces_reached(const fl_schedule *s, int64_t t)
{
    int i = 0;

    while (i < s->is.n && t >= s->boundary[i])
        i++;
    return i;
}

static double polynomial_rate(const fleet_schedule *s, double lr, double t)
{
    const double end = (double)s->end;
    double steps = (double)s->steps;

    if (s->cycle && t > 0)
        steps *= ceil(t / steps);
    t = fmin(t, steps);
    return end + (lr - end) * pow(1 - t / steps, (double)s->power);
}

static double cosine_rate(const fleet_schedule *s, double lr, double t)
{
    const double end = (double)s->end;

    if (!s->cycle && t >= (double)s->steps)
        return end;
    return end + (lr - end) * (1 + cos(M_PI * t / (double)s->steps)) / 2;
}

static double anneal_between(const fleet_schedule *s, double from, double to,
                             double part)
{
    return s->linear ? from + (to - from) * part
                     : to + (from - to) / 2 * (1 + cos(M_PI * part));
}

static double one_cycle_rate(const fleet_schedule *s, double lr, double t)
{
    const double start = lr / (double)s->start_divisor;
    const double end = start / (double)s->end_divisor;
    const double top = (double)s->rise * (double)s->steps - 1;
    const double last = (double)s->steps - 1;

    if (t <= top && top > 0)
        return anneal_between(s, start, lr, t / top);
    return anneal_between(s, lr, end, fmin((t - top) / (last - top), 1));
}

/* t updates behind the warm-up. */
static double rate_at(const fl_schedule *schedule, double lr, int64_t t)
{
    const fleet_schedule *s = &schedule->is;
    const double rate = (double)s->rate, step = (double)t + 1;
    double part = s->steps > 0 ? (double)t / (double)s->steps : 0;

    if (s->staircase || s->kind == FLEET_SCHEDULE_STEP)
        part = floor(part);
    switch (s->kind) {
    case FLEET_SCHEDULE_CONSTANT:
        break;
    case FLEET_SCHEDULE_PIECEWISE:
        return (double)schedule->value[pieces_reached(schedule, t)];
    case FLEET_SCHEDULE_EXPONENTIAL:
    case FLEET_SCHEDULE_STEP:
        return lr * pow(rate, part);
    case FLEET_SCHEDULE_NATURAL_EXPONENTIAL:
        return lr * exp(-rate * part);
    case FLEET_SCHEDULE_INVERSE_TIME:
        return lr / (1 + rate * part);
    case FLEET_SCHEDULE_POLYNOMIAL:
        return polynomial_rate(s, lr, (double)t);
    case FLEET_SCHEDULE_COSINE:
        return cosine_rate(s, lr, (double)t);
    case FLEET_SCHEDULE_MULTI_STEP:
        return lr * pow(rate, pieces_reached(schedule, t));
    case FLEET_SCHEDULE_ONE_CYCLE:
        return one_cycle_rate(s, lr, (double)t);
    case FLEET_SCHEDULE_NOAM:
        return lr / sqrt((double)s->width) *
               fmin(1 / sqrt(step), step * pow((double)s->steps, -1.5));
    }
    return lr;
}

float fl_schedule_rate(const fl_schedule *s, float first, int64_t done)
{
    const int64_t warm = s->is.warmup_steps;
    const double lr = (double)first, low = (double)s->is.warmup_start;

    if (done >= warm)
        return (float)rate_at(s, lr, done - warm);
    return (float)(rate_at(s, lr, 0) *
                   (low + (1 - low) * (double)done / (double)warm));
}

/* --- compared ------------------------------------------------------------- */

void fl_schedule_print(const fl_schedule *s, fl_text *t)
{
    const fleet_schedule *is = &s->is;
    const fl_schedule_number *n;

    if (is->kind == FLEET_SCHEDULE_CONSTANT && is->warmup_steps == 0) {
        fl_text_add(t, "none");
        return;
    }
    fl_text_add(t, "%s", names[is->kind]);
    for (int i = 0; (n = fl_schedule_number_of(is->kind, i)) != NULL; i++) {
        double x = fl_schedule_get(is, n);

        if (x == 0)
            continue;
        fl_text_add(t, " %s ", n->name);
        if (n->type == FL_SCHEDULE_FLOAT)
            fl_text_float(t, (float)x);
        else
            fl_text_add(t, "%" PRId64, (int64_t)x);
    }
    for (int i = 0; i < is->n; i++) {
        if (s->value) {
            fl_text_add(t, " ");
            fl_text_float(t, s->value[i]);
        }
        fl_text_add(t, " below %" PRId64, s->boundary[i]);
    }
    if (s->value) {
        fl_text_add(t, " then ");
        fl_text_float(t, s->value[is->n]);
    }
}

void fl_schedule_hash(const fl_schedule *s, fl_hasher *h)
{
    const fleet_schedule *is = &s->is;
    const int64_t kind = (int64_t)is->kind;
    const fl_schedule_number *n;

    fl_hasher_add(h, &kind, sizeof kind);
    for (int i = 0; (n = fl_schedule_number_of(is->kind, i)) != NULL; i++) {
        const double x = fl_schedule_get(is, n);

        fl_hasher_add(h, &x, sizeof x);
    }
    if (s->boundary)
        fl_hasher_add(h, s->boundary, (size_t)is->n * sizeof *s->boundary);
    if (s->value)
        fl_hasher_add(h, s->value, ((size_t)is->n + 1) * sizeof *s->value);
}
