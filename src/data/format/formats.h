/* formats.h - the list of formats: how each is read and parsed, and the slots
 * that some have by themselves. */
#pragma once

#include "data/parse/reader.h"

/* By fleet_format, as configurations and saves say it; NULL at the end. */
extern const char *const fl_format_names[];

/* The parser of a format's lines. */
fl_parse *fl_format_parse(fleet_format format);

/* Where the lines come from. */
fleet_status fl_format_open(fleet_format format, fl_reader **r,
                            const fl_reader_env *env);

/* Do files of this format bring their slots with them? */
bool fl_format_has_slots(fleet_format format);

/* The slots that FLEET_CRITEO and FLEET_IDX have by themselves; NULL for the
 * other formats. For idx, images is the path whose header gives the width. */
fleet_status fl_format_own_slots(fleet_format format, const char *images,
                                 const fleet_slot **slots, int *n_slot);
void fl_format_free_own_slots(const fleet_slot *slots);
