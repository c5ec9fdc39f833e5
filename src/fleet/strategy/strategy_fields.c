/* strategy_fields.c - the list of fields, their values, their effect by
 * mode. */
#include "fleet/strategy/strategy_fields.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fleet/strategy/strategy_amp.h"

/* Fleet's: fewer floats are reduced as they are. */
enum { DGC_SMALLEST = 16384 };

#define EVERY(x)                                                               \
    {                                                                          \
        x, x, x, x, x, x, x                                                    \
    }

static const fl_support support[FL_N_PURPOSE][FL_PS_HALF_ASYNC] = {
    /* local, ps-sync, ps-async, ps-geo, collective, hybrid sync and async */
    [FL_FOR_STEP] = EVERY(FL_ACTIVE),
    [FL_FOR_SCALING] = EVERY(FL_NO_EFFECT_FLOAT16),
    [FL_FOR_PURE_FP16] = EVERY(FL_NO_EFFECT_PURE_FP16),
    [FL_FOR_ASYNC] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE,
                      FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_SERVERS] = {FL_NO_EFFECT_SERVERS, FL_FIXED, FL_FIXED, FL_FIXED,
                        FL_NO_EFFECT_SERVERS, FL_FIXED, FL_FIXED},
    [FL_FOR_HALF_ASYNC] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_NO_EFFECT_ASYNC,
                           FL_FIXED, FL_NO_EFFECT_SERVERS, FL_FIXED, FL_FIXED},
    [FL_FOR_GEO] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE,
                    FL_NO_EFFECT_SERVERS, FL_FIXED, FL_FIXED},
    [FL_FOR_STALENESS] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE,
                          FL_REFUSED, FL_REFUSED, FL_REFUSED, FL_REFUSED},
    [FL_FOR_CACHE] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_REFUSED,
                      FL_NO_EFFECT_SERVERS, FL_REFUSED, FL_REFUSED},
    [FL_FOR_CACHE_AGE] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE,
                          FL_REFUSED, FL_NO_EFFECT_SERVERS, FL_REFUSED,
                          FL_REFUSED},
    [FL_FOR_WIRE] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_REFUSED,
                     FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_WIRE_KEYS] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE,
                          FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_LOG] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE,
                    FL_NO_EFFECT_SERVERS, FL_REFUSED, FL_REFUSED},
    [FL_FOR_LIVE_HASH] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE,
                          FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_REPLICAS] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_REFUSED,
                         FL_NO_EFFECT_SERVERS, FL_REFUSED, FL_REFUSED},
    [FL_FOR_STAGES] = {FL_NO_EFFECT_SERVERS, FL_ACTIVE, FL_ACTIVE, FL_REFUSED,
                       FL_REFUSED, FL_REFUSED, FL_REFUSED},
    [FL_FOR_ORDER] = {FL_ACTIVE, FL_ACTIVE, FL_REFUSED, FL_REFUSED, FL_ACTIVE,
                      FL_ACTIVE, FL_REFUSED},
    [FL_FOR_RANKS] = {FL_NO_EFFECT_COLLECTIVE, FL_REFUSED, FL_REFUSED,
                      FL_REFUSED, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_ALL_REDUCE] = {FL_NO_EFFECT_COLLECTIVE, FL_NO_EFFECT_COLLECTIVE,
                           FL_NO_EFFECT_COLLECTIVE, FL_NO_EFFECT_COLLECTIVE,
                           FL_ACTIVE, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_SYNC_NORM] = {FL_NO_EFFECT_COLLECTIVE, FL_REFUSED, FL_REFUSED,
                          FL_REFUSED, FL_ACTIVE, FL_ACTIVE, FL_ACTIVE},
    [FL_FOR_LOCALSGD] = {FL_NO_EFFECT_COLLECTIVE, FL_NO_EFFECT_COLLECTIVE,
                         FL_NO_EFFECT_COLLECTIVE, FL_NO_EFFECT_COLLECTIVE,
                         FL_ACTIVE, FL_REFUSED, FL_REFUSED},
    [FL_FOR_FIXED_RANKS] = {FL_NO_EFFECT_COLLECTIVE, FL_NO_EFFECT_COLLECTIVE,
                            FL_NO_EFFECT_COLLECTIVE, FL_NO_EFFECT_COLLECTIVE,
                            FL_FIXED, FL_FIXED, FL_FIXED},
    [FL_FOR_PS_GPU] = {FL_ACTIVE, FL_REFUSED, FL_REFUSED, FL_REFUSED,
                       FL_REFUSED, FL_REFUSED, FL_REFUSED},
    [FL_FOR_LATER] = EVERY(FL_REFUSED),
};
#undef EVERY

#define MB ((1 << 20) / sizeof(float)) /* floats */

#define NOTHING    .unit = 0
#define TO(member) TIMES(1, member)
#define TIMES(x, member)                                                       \
    .target = offsetof(fl_training, member), .unit = (double)(x),              \
    .target_type = _Generic(((fl_training *)0)->member,                        \
        bool: FL_TO_BOOL,                                                      \
        int64_t: FL_TO_INT64,                                                  \
        float: FL_TO_FLOAT,                                                    \
        const char *: FL_TO_WORDS,                                             \
        default: FL_TO_INT)
#define NEEDS_SWITCH    .needs_switch = true
#define OFF_BY(name)    .off_by = name
#define DYNAMIC         OFF_BY("amp_configs.use_dynamic_loss_scaling")
#define WHY(reason)     .why = reason
#define NOT_WITH(names) .not_with = names
#define NAMES(list)     .names = list
#define FL_FIELD(TYPE, member, standard, low, high, PURPOSE, ...)              \
    {#member,                                                                  \
     FL_FIELD_##TYPE,                                                          \
     offsetof(fleet_distributed_strategy, member),                             \
     standard,                                                                 \
     low,                                                                      \
     high,                                                                     \
     FL_FOR_##PURPOSE,                                                         \
     __VA_ARGS__},

static const char *const wire_types[] = {"fp32", "fp16", "bf16", "int8", NULL};
const char *const fl_durability_names[] = {"none", "process", "power", NULL};

const fl_strategy_field fl_fields[] = {
#include "fleet/strategy/strategy_fields.def"
};

fleet_distributed_strategy fleet_distributed_strategy_default(void)
{
    fleet_distributed_strategy s = {0};

    for (int i = 0; i < FL_N_FIELD; i++)
        fl_strategy_field_set(&s, &fl_fields[i], fl_fields[i].standard);
    return s;
}

/* --- values --------------------------------------------------------------- */

const char *fl_strategy_field_words(const fleet_distributed_strategy *s,
                                    const fl_strategy_field *f)
{
    const char *words;

    memcpy(&words, (const char *)s + f->offset, sizeof words);
    return words && *words ? words : NULL;
}

double fl_strategy_field_value(const fleet_distributed_strategy *s,
                               const fl_strategy_field *f)
{
    const char *at = (const char *)s + f->offset;
    int64_t i64;
    int i;
    float x;

    switch (f->type) {
    case FL_FIELD_WORDS:
        return fl_strategy_field_words(s, f) != NULL;
    case FL_FIELD_BOOL:
    case FL_FIELD_INT:
        memcpy(&i, at, sizeof i);
        return i;
    case FL_FIELD_INT64:
        memcpy(&i64, at, sizeof i64);
        return (double)i64;
    default:
        memcpy(&x, at, sizeof x);
        return (double)x;
    }
}

void fl_strategy_field_set(fleet_distributed_strategy *s,
                           const fl_strategy_field *f, double x)
{
    char *at = (char *)s + f->offset;
    int64_t i64 = (int64_t)x;
    float real = (float)x;
    int i = (int)i64;

    if (f->type == FL_FIELD_INT64)
        memcpy(at, &i64, sizeof i64);
    else if (f->type == FL_FIELD_FLOAT)
        memcpy(at, &real, sizeof real);
    else if (f->type != FL_FIELD_WORDS)
        memcpy(at, &i, sizeof i);
}

const char *fl_strategy_field_text(const fl_strategy_field *f, double x,
                                   int digits, char text[FL_FIELD_TEXT])
{
    if (f->names && x >= f->low && x <= f->high)
        return f->names[(int)x];
    snprintf(text, FL_FIELD_TEXT, "%.*g", digits, x);
    return text;
}

bool fl_strategy_field_is_asked(const fleet_distributed_strategy *s,
                                const fl_strategy_field *f)
{
    double standard =
        f->type == FL_FIELD_FLOAT ? (double)(float)f->standard : f->standard;

    return fl_strategy_field_value(s, f) != standard;
}

/* --- effects -------------------------------------------------------------- */

const fl_strategy_field *fl_strategy_field_named(const char *name,
                                                 size_t length)
{
    for (int i = 0; i < FL_N_FIELD; i++)
        if (strncmp(fl_fields[i].name, name, length) == 0 &&
            fl_fields[i].name[length] == 0)
            return &fl_fields[i];
    return NULL;
}

const fl_strategy_field *fl_strategy_field_switch(const fl_strategy_field *f)
{
    const char *end = strstr(f->name, "_configs.");

    return end && f->purpose != FL_FOR_CACHE && f->purpose != FL_FOR_PS_GPU
               ? fl_strategy_field_named(f->name, (size_t)(end - f->name))
               : NULL;
}

const fl_strategy_field *fl_strategy_field_off_by(
    const fleet_distributed_strategy *s, const fl_strategy_field *f)
{
    const fl_strategy_field *on = fl_strategy_field_switch(f);

    if (f->off_by && (!on || fl_strategy_field_value(s, on) != 0))
        on = fl_strategy_field_named(f->off_by, strlen(f->off_by));
    return on && fl_strategy_field_value(s, on) == 0 ? on : NULL;
}

int fl_strategy_in_flight(const fleet_distributed_strategy *s)
{
    return s->pipeline ? s->pipeline_configs.accumulate_steps : 1;
}

/* Half-async is async but for the fields that ask for it, and copies. */
static fl_support support_in(fl_purpose purpose, fl_job_mode mode)
{
    if (mode != FL_PS_HALF_ASYNC)
        return support[purpose][mode];
    return purpose == FL_FOR_HALF_ASYNC ? FL_ACTIVE
           : purpose == FL_FOR_REPLICAS ? FL_REFUSED
                                        : support[purpose][FL_PS_ASYNC];
}

fl_support fl_strategy_field_support(const fleet_distributed_strategy *s,
                                     const fl_strategy_field *f,
                                     fl_job_mode mode)
{
    fl_support by_mode = support_in(f->purpose, mode);

    if (by_mode != FL_ACTIVE && by_mode != FL_NO_EFFECT_FLOAT16)
        return by_mode;
    if (fl_strategy_field_off_by(s, f))
        return FL_NO_EFFECT_OFF;
    return fl_amp_dtype(s) == FLEET_FLOAT16 ? FL_ACTIVE : by_mode;
}

/* The field's member of a training gets its value, unless a switch turns the
 * field off. Whether there are ranks or servers is for the passes to see. */
static void apply_field(const fleet_distributed_strategy *s,
                        const fl_strategy_field *f, fl_training *t)
{
    void *target = (char *)t + f->target;
    double x = fl_strategy_field_value(s, f) * f->unit;

    if (x == 0 || fl_strategy_field_off_by(s, f) ||
        (f->purpose == FL_FOR_SCALING && fl_amp_dtype(s) != FLEET_FLOAT16))
        return;
    switch (f->target_type) {
    case FL_TO_BOOL:
        *(bool *)target = true;
        break;
    case FL_TO_INT:
        *(int *)target = (int)x;
        break;
    case FL_TO_INT64:
        *(int64_t *)target = (int64_t)x;
        break;
    case FL_TO_FLOAT:
        *(float *)target = (float)x;
        break;
    case FL_TO_WORDS:
        *(const char **)target = fl_strategy_field_words(s, f);
    }
}

void fl_strategy_set_training(const fleet_distributed_strategy *s,
                              fl_training *t)
{
    for (int i = 0; i < FL_N_FIELD; i++)
        apply_field(s, &fl_fields[i], t);
    t->dgc.smallest = DGC_SMALLEST;
}
