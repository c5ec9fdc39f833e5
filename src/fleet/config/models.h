/* models.h - the models that a configuration can name. */
#pragma once

#include "fleet/applications/ctr.h"
#include "fleet/config/config_internal.h"
#include "fleet/config/run_internal.h"

/* Models that are configured alike. */
typedef struct fl_model_family {
    bool tables;             /* they look ids up */
    bool one_input;          /* of numbers; their label is a class */
    const char *const *keys; /* of `model`, beside `type` and `ps`; NULL ends
                                them */
    /* What is in `model` beside what all have, NULL: nothing; keys that the
     * model does not have are refused. */
    fleet_status (*read)(fl_config *c, const fl_at *model);
    /* Its slots; `path` is where they are configured. */
    fleet_status (*check)(const fl_config *c, const fl_config_counts *n,
                          const char *path);
    fleet_status (*make)(fl_config_run *t);
} fl_model_family;

extern const fl_model_family fl_family_ctr, fl_family_mlp, fl_family_lenet;

struct fl_model_kind {
    const char *name;
    const fl_model_family *family;
    const fl_ctr_model *ctr; /* of fl_family_ctr: also keys of its own */
};

extern const fl_model_kind fl_model_kinds[]; /* a name NULL ends them */
