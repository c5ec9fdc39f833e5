/* models.c - the models that a configuration can name, as model_list.def has
 * them. */
#include "fleet/config/models.h"

#define FL_CTR_MODEL(title)                                                    \
    {.name = #title, .family = &fl_family_ctr, .ctr = &fl_model_##title},
#define FL_MODEL(title) {.name = #title, .family = &fl_family_##title},

const fl_model_kind fl_model_kinds[] = {
#include "fleet/applications/model_list.def"
    {.name = NULL},
};

#undef FL_CTR_MODEL
#undef FL_MODEL
