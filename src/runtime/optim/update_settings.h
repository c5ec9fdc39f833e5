/* update_settings.h - what the setters of an optimizer decide of an update:
 * processes that update together must have the same, and servers get them with
 * every step. */
#pragma once

#include "base/text.h"
#include "runtime/optim/optimizer.h"

/* By their names in messages. */
#define FL_UPDATE_SETTINGS(X)                                                  \
    X(learning_rate)                                                           \
    X(l2_decay)                                                                \
    X(global_norm_clip) /* 0: none */                                          \
    X(value_clip)       /* 0: none */                                          \
    X(l1_decay)

typedef struct fl_update_settings {
#define FL_UPDATE_SETTING(name) float name;
    FL_UPDATE_SETTINGS(FL_UPDATE_SETTING)
#undef FL_UPDATE_SETTING
} fl_update_settings;

/* Of the update that o makes as u says; and the other way round, on a
 * server. */
fl_update_settings fl_update_settings_of(const fleet_optimizer *o,
                                         const fl_update *u);
void fl_update_settings_apply(const fl_update_settings *s, fl_update *u);

/* FLEET_EINVAL with the name of one that no optimizer has. */
fleet_status fl_update_settings_check(const fl_update_settings *s);

/* "l2_decay is 0.1 in worker 0, 0 in worker 2", by whose they are; false: they
 * are the same. */
bool fl_update_settings_differ(const fl_update_settings *a, const char *of_a,
                               const fl_update_settings *b, const char *of_b,
                               fl_text *text);

/* Equal in optimizers that were set alike. */
uint64_t fl_optimizer_settings_hash(const fleet_optimizer *o);
