/* networks: the name behind a network's number. Key: network_id(name). Written by the first ADD of a network. */
#pragma once

#include "endpoint.h"

struct network {
	char name[ENDPOINT_NETWORK_SIZE];
};
