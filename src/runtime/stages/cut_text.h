/* cut_text.h - a cut, for people. */
#pragma once

#include "runtime/stages/cut.h"

/* Stages, what they have and why, what crosses, and its bytes for a batch. */
fleet_status fl_cut_text(const fl_cut *cut, int64_t batch, fl_text *out);
