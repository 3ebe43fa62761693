"""Several hosts on one machine: network namespaces, and a wire of given speed and delay between them."""
