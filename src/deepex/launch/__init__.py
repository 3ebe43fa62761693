"""How ranks come to life: found under a launcher, or started here. The only place that reads rank and size."""
