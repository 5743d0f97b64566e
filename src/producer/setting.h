/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a consumer that can be changed while it runs (tsocketctl set). With the producer's lock held. */
#ifndef TSP_SETTING_H
#define TSP_SETTING_H

#include "roster.h"

/* "KEY=VALUE", from outside. False: not a setting, or no such value; nothing has changed. */
bool tsp_setting_change(struct tsp_consumer *consumer, const char *setting);

#endif
