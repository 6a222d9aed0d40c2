"""An unknown friction force at a mass on a spring: from its recordings to the force, a law for it and a scene."""
