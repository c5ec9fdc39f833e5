/* ctr_builders.c - the public builders of click models, as model_list.def has
 * them. */
#include "fleet/applications/ctr_internal.h"

#define FL_CTR_MODEL(title)                                                    \
    fleet_var *fleet_##title(fleet_program *p,                                 \
                             const fleet_ctr_options *options,                 \
                             fleet_model *model)                               \
    {                                                                          \
        return fl_ctr_build(p, options, model, &fl_model_##title);             \
    }
#define FL_MODEL(title)
#include "fleet/applications/model_list.def"
