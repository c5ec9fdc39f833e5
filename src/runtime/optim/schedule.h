/* schedule.h - the inside of a learning rate's schedule: its numbers, checked,
 * and what it gives. */
#pragma once

#include <fleet/schedule.h>

#include "base/hash.h"
#include "base/text.h"

typedef enum fl_schedule_type {
    FL_SCHEDULE_INT,
    FL_SCHEDULE_FLOAT,
    FL_SCHEDULE_FLAG
} fl_schedule_type;

/* A number of a schedule: see schedules.def. */
typedef struct fl_schedule_number {
    int kind; /* FL_EVERY_SCHEDULE: all have it */
    fl_schedule_type type;
    const char *name;
    size_t at; /* in fleet_schedule */
    double otherwise, low, high;
} fl_schedule_number;

enum { FL_EVERY_SCHEDULE = -1 };

enum {
    FL_N_SCHEDULE = 0
#define FL_SCHEDULE(...) +1
#include "runtime/optim/schedules.def"
};

/* One that is complete, with its own copies of the arrays. */
typedef struct fl_schedule {
    fleet_schedule is;
    int64_t *boundary;
    float *value;
} fl_schedule;

const char *fl_schedule_name(fleet_schedule_kind kind);

/* The kind's number i, from 0 on; NULL: it has no more. */
const fl_schedule_number *fl_schedule_number_of(fleet_schedule_kind kind,
                                                int i);
double fl_schedule_get(const fleet_schedule *s, const fl_schedule_number *n);
void fl_schedule_put(fleet_schedule *s, const fl_schedule_number *n, double x);

/* Has it boundaries; has it values, too? */
bool fl_schedule_has_boundaries(fleet_schedule_kind kind);
bool fl_schedule_has_values(fleet_schedule_kind kind);

/* FLEET_EINVAL with the member that is wrong; FLEET_ENOMEM. NULL: constant. */
fleet_status fl_schedule_make(const fleet_schedule *from, fl_schedule *to);
void fl_schedule_done(fl_schedule *s);

/* Of the update after `done` updates; first: lr of the formulas. */
float fl_schedule_rate(const fl_schedule *s, float first, int64_t done);

/* "cosine steps 100 end 0.01": for what processes of a job compare. */
void fl_schedule_print(const fl_schedule *s, fl_text *t);
void fl_schedule_hash(const fl_schedule *s, fl_hasher *h);
