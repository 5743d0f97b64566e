/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsocketctl doctor: what of this machine tsocket can use from here, tried where that is possible, and of what it
 * cannot, the first thing to change.
 */
#ifndef TSC_DOCTOR_H
#define TSC_DOCTOR_H

#include <stdbool.h>
#include <stdio.h>

/* Prints a line for each thing looked at. True: everything that rings in host memory need is there. */
bool tsc_doctor(FILE *out);

#endif
