/* ctr_retrieval.h - what models of retrieval end with. */
#pragma once

#include "fleet/applications/ctr_internal.h"

/* Vectors, prediction and loss of pairs [B, N]. */
void fl_retrieval_finish(fl_ctr *c, fleet_var *user, fleet_var *item,
                         fleet_model *m);
