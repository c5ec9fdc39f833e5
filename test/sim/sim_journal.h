/* sim_journal.h - journals of simulated lanes, in real files below a folder: a
 * server that dies comes back with what its lanes have committed, and may die
 * as it writes. */
#pragma once

#include "sim.h"

/* A fresh folder for the journals of a run: s->o.journal. */
void sim_journal_clear(const char *folder);

/* What the lane writes into. */
fl_journal_sink sim_journal_sink(sim_lane *l);

/* The lane was made: it begins its journal, or is made again from it. */
void sim_journal_begin(sim *s, sim_lane *l);

/* SIM_LANE_REPLAYS: some records more. */
void sim_journal_goes_on(sim *s, sim_lane *l);

/* A tick: a snapshot may be begun, by chance, and is written by
 * SIM_LANE_CUTS. */
void sim_journal_tick(sim *s, sim_lane *l);
void sim_journal_cut(sim *s, sim_lane *l);

/* Its process is gone: what was not committed is lost. */
void sim_journal_dies(sim_lane *l);
