/* sim_trail.h - trails of simulated workers, in real files below a folder: a
 * worker that dies is started again and goes on where its trail says. */
#pragma once

#include "sim.h"

/* A fresh folder for the trails of a run: s->o.trail. */
void sim_trail_clear(const char *folder);

/* Its process begins; false: it has nothing to do any more. */
bool sim_trail_open(sim_worker *w, fl_hello_options *o);

/* It has its place. */
void sim_trail_enter(sim_worker *w);

/* It sends: it may die. */
void sim_trail_message(sim_worker *w);
