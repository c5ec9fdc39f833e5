/* said.h - what a lane has said of itself, read. */
#pragma once

#include "ask.h"

/* -1, "-": it does not say. */
int64_t said_number(const fl_at *object, const char *key);
const char *said_text(const fl_at *object, const char *key);

/* It is no copy that follows, or that has given way, and it is a lane. */
bool said_leads(const asked_lane *l);
