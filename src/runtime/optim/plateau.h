/* plateau.h - a learning rate that falls when a metric stops improving: its
 * options, complete, and what it has seen, which a checkpoint has. */
#pragma once

#include <stdbool.h>

#include <fleet/schedule.h>

/* What is in a checkpoint. */
typedef struct fl_plateau_state {
    float learning_rate;
    double best;
    int64_t bad, cooling; /* reports without an improvement; to wait for yet */
    int64_t reports;      /* 0: nothing has been seen */
} fl_plateau_state;

typedef struct fl_plateau {
    bool on;
    fleet_plateau_options is;
    fl_plateau_state
        seen; /* learning_rate: the optimizer's, on loading alone */
} fl_plateau;

/* FLEET_EINVAL with the member that is wrong. NULL: off. */
fleet_status fl_plateau_make(const fleet_plateau_options *from, fl_plateau *to);

/* A metric is seen; the learning rate that follows from it. */
float fl_plateau_report(fl_plateau *p, double value, float learning_rate);

/* A metric that is not known is reported: it counts, and changes nothing
 * else. */
void fl_plateau_pass_by(fl_plateau *p);
